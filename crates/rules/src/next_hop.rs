//! Chooses the next hop from rules, routes and tables in the configured order, the most specific entry of each first.

use stentor_mail::reply::Reply;

use crate::address::Key;
use crate::book::Rulebook;
use crate::decision::{DecisionReason, End, MISCONFIGURED, Marks, PendingLookup, UNAVAILABLE, ended};
use crate::explain::{Step, note};
use crate::facts::{Facts, Field, LookupResult, Subject, TableId, Tables};
use crate::hop::NextHop;
use crate::routes::HopSource;
use crate::rule::hop_of;

impl Rulebook {
    /// The next hop, by the first source in the order that has one.
    pub(crate) fn next_hop(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        by_rule: Option<(NextHop, DecisionReason)>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<(NextHop, DecisionReason), End> {
        let mut chosen: Option<(NextHop, DecisionReason)> = None;
        let (mut by_rule, mut catch_all) = (by_rule, None);
        // Tables are looked up for a recipient before the default is, wherever the default is in the order.
        let recipient = self.by(HopSource::Recipient, facts.recipient, tables, &mut catch_all, steps)?;
        let mut recipient = Some(recipient);
        for who in self.order.iter() {
            if chosen.is_some() && steps.is_none() {
                break;
            }
            let named = match who {
                HopSource::Rule => by_rule.take(),
                HopSource::Recipient => recipient.take().flatten(),
                HopSource::Sender => self.by_sender(facts, tables, steps)?,
                HopSource::Default => self.catch_all(HopSource::Default, catch_all.take(), steps),
            };
            let is_first = chosen.is_none();
            note(steps, || {
                let answer = match &named {
                    None => "no next hop".to_owned(),
                    Some((hop, why)) if is_first => format!("next hop {hop}, by {}", self.shown(why)),
                    Some((hop, why)) => format!("{hop}, by {}, overridden by an earlier route", self.shown(why)),
                };
                (format!("routes: {}", who.name()), String::new(), answer)
            });
            if is_first {
                chosen = named;
            }
        }
        Ok(chosen.unwrap_or((NextHop::Mx, DecisionReason::Mx)))
    }

    /// Next hop of a domain from routes and tables, for recipients without one of their own. It is determined when
    /// the domain is resolved, also for subscribers, reports and queued mail.
    ///
    /// The inner error is a reply that names the table that is unavailable or has an unusable value.
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn domain_hop(&self, domain: &str, tables: &dyn Tables) -> Result<Result<NextHop, Reply>, PendingLookup> {
        if self.recipient_tables.is_empty() {
            return Ok(Ok(self.of_domain(domain).map_or(NextHop::Mx, |entry| entry.hop.clone())));
        }
        let mut catch_all = None;
        match self.by(HopSource::Recipient, &Key::new(&format!("@{domain}")), tables, &mut catch_all, &mut None) {
            Ok(Some((hop, _))) => Ok(Ok(hop)),
            Ok(None) => {
                let any = self.catch_all(HopSource::Default, catch_all, &mut None);
                Ok(Ok(any.map_or(NextHop::Mx, |(hop, _)| hop)))
            }
            Err(end) => {
                let table = end.table().map(|id| self.table_name(id).to_owned());
                let reply = end.into_reply()?;
                let Some(table) = table else { return Ok(Err(reply)) };
                let text = format!("table {table}: {}", reply.text);
                Ok(Err(Reply { text: text.into(), ..reply }))
            }
        }
    }

    /// Entries of routes and tables for a sender, including catch-alls.
    fn by_sender(
        &self,
        facts: &Facts<'_>,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Option<(NextHop, DecisionReason)>, End> {
        let mut catch_all = None;
        let own = self.by(HopSource::Sender, facts.sender, tables, &mut catch_all, steps)?;
        Ok(own.or_else(|| self.catch_all(HopSource::Sender, catch_all, steps)))
    }

    /// Entries of routes and tables for an address, without catch-alls: the first catch-all of a table is kept for
    /// later.
    fn by(
        &self,
        who: HopSource,
        key: &Key,
        tables: &dyn Tables,
        catch_all: &mut Option<(NextHop, DecisionReason)>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Option<(NextHop, DecisionReason)>, End> {
        let (routes, ids, field) = match who {
            HopSource::Sender => (&self.by_sender, &self.sender_tables, Field::Sender),
            _ => (&self.by_recipient, &self.recipient_tables, Field::Recipient),
        };
        if let Some(entry) = routes.find(key) {
            return Ok(Some((entry.hop.clone(), DecisionReason::Route(who, entry.clone()))));
        }
        let mut over = None;
        for id in ids {
            let dialect = self.dialect(*id);
            if over == Some(dialect) {
                continue;
            }
            let found = match tables.ask(*id, field, Subject::Address(key)) {
                LookupResult::Found(found) => found,
                LookupResult::NotFound => {
                    note(steps, || (self.asked_table(*id), String::new(), "not found".to_owned()));
                    continue;
                }
                LookupResult::Pending => return Err(End::Pending),
                LookupResult::Unavailable(why) => {
                    note(steps, || (self.asked_table(*id), String::new(), format!("unavailable: {why}")));
                    return Err(ended(
                        UNAVAILABLE,
                        DecisionReason::Table(*id, who, key.as_str().into(), "".into()),
                        Marks::default(),
                    ));
                }
            };
            let why = DecisionReason::Table(*id, who, found.key.clone().into(), found.place.clone().into());
            let hop = match hop_of(dialect, &found.value, self.smtp_port) {
                Ok(Some(hop)) => hop,
                Ok(None) => {
                    let asked = || format!("{}, {}", self.asked_table(*id), found.key);
                    note(steps, || (asked(), found.place.clone(), format!("{:?}: no next hop", found.value)));
                    // In Postfix this ends the lookup in all tables of the kind, even if others have an entry.
                    if dialect.ends_with_dunno() {
                        over = Some(dialect);
                        catch_all.take_if(
                            |(_, by)| matches!(by, DecisionReason::Table(of, ..) if self.dialect(*of) == dialect),
                        );
                    }
                    continue;
                }
                Err(error) => {
                    let asked = format!("{}, {}", self.asked_table(*id), found.key);
                    note(steps, || (asked, found.place.clone(), format!("{:?}: {error}", found.value)));
                    return Err(ended(MISCONFIGURED, why, Marks::default()));
                }
            };
            if !matches!(&*found.key, "*" | ".") {
                return Ok(Some((hop, why)));
            }
            match catch_all {
                Some((_, first)) => self.note_lost(steps, who, &hop, &why, first),
                None => *catch_all = Some((hop, why)),
            }
        }
        Ok(None)
    }

    /// The catch-all: entries of a section take precedence over a table's, here as elsewhere.
    fn catch_all(
        &self,
        who: HopSource,
        of_table: Option<(NextHop, DecisionReason)>,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Option<(NextHop, DecisionReason)> {
        let routes = if who == HopSource::Sender { &self.by_sender } else { &self.by_recipient };
        let Some(entry) = routes.any() else { return of_table };
        let own = DecisionReason::Route(who, entry.clone());
        if let Some((hop, by)) = &of_table {
            self.note_lost(steps, who, hop, by, &own);
        }
        Some((entry.hop.clone(), own))
    }

    /// Records a catch-all that has no effect.
    fn note_lost(
        &self,
        steps: &mut Option<&mut Vec<Step>>,
        who: HopSource,
        hop: &NextHop,
        by: &DecisionReason,
        first: &DecisionReason,
    ) {
        note(steps, || {
            let who = if who == HopSource::Recipient { HopSource::Default } else { who };
            let answer = format!("{hop}, by {}, overridden by {}", self.shown(by), self.shown(first));
            (format!("routes: {}", who.name()), String::new(), answer)
        });
    }

    fn asked_table(&self, id: TableId) -> String {
        format!("table {}", self.table_name(id))
    }
}
