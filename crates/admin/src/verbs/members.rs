//! `stentor member`: adds, removes and shows members of lists in the registry.
//!
//! Promise: the journal's audit record is durable before the change, and the change is durable before the reply; the
//! next post goes to the new members. Whoever left or complained is not added again unless the operator insists.

use std::sync::Arc;

use serde_json::json;
use stentor_control::format::plural;
use stentor_control::{
    ControlReply, DeliverySetting, DepartureView, ErrorCode, MemberOptions, MemberRemoval, MemberTable, MemberView,
    NewMember, NewMembers, PersonOptions, PersonView, Problem, Requester,
};
use stentor_core::Core;
use stentor_mail::address::Address;
use stentor_queue::ids::Ms;
use stentor_registry::{
    self as registry, DeliveryChange, Departure, JoinEffect, JoinedBy, ListMember, Member, MemberDelivery, MemberQuery,
    Scope, Subject, Suppression, SuppressionReason,
};

use super::author::who;
use super::suppressions::{failed, of, record};
use crate::lists;

/// Addresses that an answer names.
const NAMED_MAX: usize = 5;
/// Ends of memberships that `stentor member show` prints.
const DEPARTURES_MAX: usize = 100;
/// Lists of a person.
const LISTS_MAX: usize = 1_000;

pub async fn add(core: &Arc<Core>, new: NewMembers, peer: &Requester) -> Result<ControlReply, Problem> {
    let NewMembers { list, members, again, source } = new;
    if let Some(problem) = lists::unknown(core, Some(&list)) {
        return Err(problem);
    }
    let (now, author) = (core.clock.now(), who(peer));
    let source = source.unwrap_or_else(|| author.clone());
    let members: Vec<Member> = members
        .into_iter()
        .enumerate()
        .map(|(n, member)| parse(member, &source, now).map_err(|why| bad(n, &why)))
        .collect::<Result<_, _>>()?;
    let addresses: Vec<String> = members.iter().map(|member| member.address.to_string()).collect();
    let detail =
        json!({"list": list, "members": members.len(), "first": addresses.first(), "source": source, "again": again});
    record(core, now, author.clone(), "member_add", detail).await?;
    let new = registry::MemberAddition { list: list.clone(), members, by: JoinedBy::Operator { again }, now };
    let effects = core.registry.join(new).await.map_err(|error| failed(&error))?;
    let count = |wanted: JoinEffect| effects.iter().filter(|effect| **effect == wanted).count() as u64;
    let joined = count(JoinEffect::Joined);
    tracing::info!(who = author, list, joined, of = effects.len(), "operator: members added");
    let left: Vec<&str> = addresses
        .iter()
        .zip(&effects)
        .filter(|(_, effect)| matches!(effect, JoinEffect::LeftBefore(_)))
        .map(|(address, _)| address.as_str())
        .collect();
    let mut text = match &addresses[..] {
        [one] if joined == 1 => format!("{one} is a member of {list}"),
        [one] if left.is_empty() => format!("{one} was a member of {list} already"),
        [one] => format!("{one} is not a member of {list}"),
        _ => format!("{} of {list}", plural(joined, "new member")),
    };
    let there = count(JoinEffect::AlreadyMember);
    if there > 0 && addresses.len() > 1 {
        text = format!("{text}, {there} already there");
    }
    let mut remarks = Vec::from_iter((!left.is_empty()).then(|| {
        format!("not added because they left, complained or were banned: {}; use --again to add them", named(&left))
    }));
    if core.settings().subscribers(&list).is_some() {
        remarks.push("in force once the list has no key `subscribers`".to_owned());
    }
    for remark in &remarks {
        text = format!("{text}; {remark}");
    }
    Ok(ControlReply::Done { text, count: Some(joined), remarks })
}

pub async fn remove(core: &Arc<Core>, removal: MemberRemoval, peer: &Requester) -> Result<ControlReply, Problem> {
    let MemberRemoval { list, addresses, reason } = removal;
    check_list(core, &list)?;
    let (now, author) = (core.clock.now(), who(peer));
    let subjects = subjects(&addresses)?;
    let scope = Scope::list(&list).map_err(|error| wrong(error.to_string()))?;
    let (mut entries, mut missing) = (Vec::new(), Vec::new());
    for (subject, address) in subjects.into_iter().zip(&addresses) {
        let query = MemberQuery { list: Some(list.clone()), address: Some(subject.clone()), rows_max: 1, after: None };
        if core.registry.members(query).await.map_err(|error| failed(&error))?.is_empty() {
            missing.push(address.as_str());
            continue;
        }
        // As if the person had left: waiting copies are dropped, and an import does not add the person again.
        let entry = Suppression::new(subject, scope.clone(), SuppressionReason::Unsubscribe, &author, now);
        entries.push(Suppression { note: reason.clone().unwrap_or_default().into(), ..entry });
    }
    entries.iter().try_for_each(Suppression::check).map_err(|error| wrong(error.to_string()))?;
    let removed = entries.len() as u64;
    let missing_text = format!("not members of {list}: {}", named(&missing));
    if removed == 0 {
        return Err(Problem::new(ErrorCode::NotFound, missing_text));
    }
    let first = entries.first().map(|entry| entry.key.subject.text());
    let detail = json!({"list": list, "members": removed, "first": first, "reason": reason});
    record(core, now, author.clone(), "member_remove", detail).await?;
    core.registry.suppress_all(entries).await.map_err(|error| failed(&error))?;
    tracing::info!(who = author, list, removed, "operator: members removed");
    let text = format!("{} removed from {list}", plural(removed, "member"));
    let remarks = Vec::from_iter((!missing.is_empty()).then_some(missing_text));
    let text = remarks.iter().fold(text, |text, remark| format!("{text}; {remark}"));
    Ok(ControlReply::Done { text, count: Some(removed), remarks })
}

pub async fn set_delivery(
    core: &Arc<Core>,
    setting: DeliverySetting,
    peer: &Requester,
) -> Result<ControlReply, Problem> {
    let DeliverySetting { list, addresses, delivery } = setting;
    check_list(core, &list)?;
    let delivery = delivery_of(&delivery).map_err(wrong)?;
    let (now, author) = (core.clock.now(), who(peer));
    let subjects = subjects(&addresses)?;
    let detail =
        json!({"list": list, "members": subjects.len(), "first": addresses.first(), "delivery": delivery.name()});
    record(core, now, author, "member_set", detail).await?;
    let change = DeliveryChange { list: list.clone(), subjects, delivery };
    let found = core.registry.set_delivery(change).await.map_err(|error| failed(&error))?;
    let missing: Vec<&str> =
        addresses.iter().zip(&found).filter(|(_, found)| !**found).map(|(address, _)| address.as_str()).collect();
    let changed = (addresses.len() - missing.len()) as u64;
    if changed == 0 {
        return Err(Problem::new(ErrorCode::NotFound, format!("not members of {list}: {}", named(&missing))));
    }
    let mut text = format!("delivery of {} of {list} is {} from now on", plural(changed, "member"), delivery.name());
    if !missing.is_empty() {
        text = format!("{text}; not members: {}", named(&missing));
    }
    Ok(ControlReply::done(text, Some(changed)))
}

pub async fn table(core: &Arc<Core>, options: MemberOptions) -> Result<ControlReply, Problem> {
    check_list(core, &options.list)?;
    let rows_max = options.rows_max as usize;
    let after = match options.after.as_deref().map(Subject::parse).transpose() {
        Ok(after) => after.map(|subject| subject.text()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    let query = MemberQuery { list: Some(options.list.clone()), address: None, after, rows_max };
    let rows = core.registry.members(query).await.map_err(|error| failed(&error))?;
    let next = rows.last().filter(|_| rows.len() == rows_max).map(|row| row.member.subject().text());
    Ok(ControlReply::Members(Box::new(MemberTable {
        now: core.clock.now(),
        members: core.registry.member_count(&options.list),
        rows: rows.into_iter().map(view).collect(),
        next,
    })))
}

pub async fn person(core: &Arc<Core>, options: PersonOptions) -> Result<ControlReply, Problem> {
    let address: Address = options.address.parse().map_err(|error| {
        Problem::new(ErrorCode::BadRequest, format!("{:?} is not a valid mail address: {error}", options.address))
    })?;
    let subject = Subject::parse(&options.address).map_err(|error| wrong(error.to_string()))?;
    let query = MemberQuery { address: Some(subject.clone()), rows_max: LISTS_MAX, ..MemberQuery::default() };
    let memberships = core.registry.members(query).await.map_err(|error| failed(&error))?;
    let departures = core.registry.departures(subject, DEPARTURES_MAX).await.map_err(|error| failed(&error))?;
    let settings = core.settings();
    let is_in_file =
        |list: &&Arc<str>| settings.subscribers(list).is_some() && core.lists.is_member(core, list, address.as_str());
    let mut files: Vec<String> = settings.list_names().iter().filter(is_in_file).map(ToString::to_string).collect();
    files.sort_unstable();
    Ok(ControlReply::Person(Box::new(PersonView {
        now: core.clock.now(),
        suppressions: of(core, address.as_str()).await,
        address: address.to_string(),
        memberships: memberships.into_iter().map(view).collect(),
        files,
        departures: departures.into_iter().map(departure).collect(),
    })))
}

/// Refuses lists that do not exist, or whose members are in a file.
fn check_list(core: &Core, list: &str) -> Result<(), Problem> {
    if let Some(problem) = lists::unknown(core, Some(list)) {
        return Err(problem);
    }
    match core.settings().subscribers(list) {
        None => Ok(()),
        Some(file) => {
            let text = format!(
                "the subscribers of {list} are in {0}: edit that file, or move them into the registry: `stentor member \
                 import {list} {0}`, then remove the key `subscribers` and reload",
                file.display()
            );
            Err(Problem::new(ErrorCode::BadRequest, text))
        }
    }
}

fn parse(member: NewMember, source: &str, now: Ms) -> Result<Member, String> {
    let NewMember { address, name, delivery, joined } = member;
    let parsed = Member {
        address: address.parse().map_err(|error| format!("{address:?} is not a valid mail address: {error}"))?,
        name: name.unwrap_or_default(),
        delivery: delivery.as_deref().map_or(Ok(MemberDelivery::Mail), delivery_of)?,
        joined: joined.unwrap_or(now),
        source: source.to_owned(),
    };
    parsed.check().map_err(|error| error.to_string())?;
    Ok(parsed)
}

fn delivery_of(text: &str) -> Result<MemberDelivery, String> {
    MemberDelivery::parse(text).ok_or_else(|| format!("{text:?} is not a valid delivery: mail or none"))
}

fn subjects(addresses: &[String]) -> Result<Vec<Subject>, Problem> {
    let parsed = addresses.iter().enumerate().map(|(n, address)| match Subject::parse(address) {
        Ok(subject @ Subject::Address(_)) => Ok(subject),
        Ok(Subject::Domain(_)) => Err(bad(n, "a member is an address, not a domain")),
        Err(error) => Err(bad(n, &error.to_string())),
    });
    parsed.collect()
}

fn named(addresses: &[&str]) -> String {
    let mut text = addresses.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    if let Some(more) = addresses.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        text = format!("{text} and {more} more");
    }
    text
}

fn wrong(why: String) -> Problem {
    Problem::new(ErrorCode::BadRequest, why)
}

fn bad(position: usize, why: &str) -> Problem {
    Problem::new(ErrorCode::BadRequest, format!("member {}: {why}", position + 1))
}

fn view(row: ListMember) -> MemberView {
    let Member { address, name, delivery, joined, source } = row.member;
    MemberView {
        list: row.list,
        address: address.to_string(),
        name,
        delivery: delivery.name().to_owned(),
        joined,
        source,
    }
}

fn departure(row: Departure) -> DepartureView {
    let Departure { list, joined, joined_source, at, reason, source } = row;
    DepartureView { list, joined, joined_source, left: at, reason: reason.name().to_owned(), source }
}
