//! Resolves the final recipients of an address and their routes: the reply to `verify`, which `sendmail -bv` prints.
//!
//! Promise: the decision is that of RCPT for a local client that may relay, by the same rules and tables, including
//! each target of the address and its next hop. Nothing is delivered or kept, and no next hop or milter is contacted.
//! At most [`ROWS_MAX`] rows.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use stentor_addresses::AddressRole;
use stentor_control::format::plural;
use stentor_control::problem::ErrorCode;
use stentor_control::{ControlReply, VerifyRow, VerifyView};
use stentor_core::intake::IntakeRefusal;
use stentor_core::{Core, Settings};
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{AddressClass, Expansion};
use stentor_queue::ids::Ms;
use stentor_rules::{ClientName, Decision, DecisionReason, NextHop, Outcome};
use stentor_sessions::{ClientProof, Decider, Speaker, Stranger, canonical};

/// The mailer of posts.
const LIST: &str = "list";
/// Maximum targets of one address in `stentor address`.
const WORDS_MAX: usize = 20;
/// Maximum rows of one answer.
const ROWS_MAX: usize = 1_000;
const SPEAKER: Speaker<'_> = Speaker {
    client: IpAddr::V4(Ipv4Addr::LOCALHOST),
    name: ClientName::Is("localhost"),
    helo: "localhost",
    may_relay: true,
    proof: ClientProof::None,
    session: None,
    stranger: Stranger::UNKNOWN,
};

/// Verifies an address; see the module's documentation. `from` is empty for the null path.
pub async fn verify(core: &Arc<Core>, from: &str, to: &str) -> ControlReply {
    let settings = core.settings();
    let parsed = to.parse::<Address>().and_then(|to| match from {
        "" => Ok((None, to)),
        from => Ok((Some(from.parse::<Address>()?), to)),
    });
    let (sender, address) = match parsed {
        Ok(parsed) => parsed,
        Err(why) => {
            return ControlReply::error(
                ErrorCode::BadRequest,
                format!(
                    "{from:?} or {to:?} is not a valid address: \
            {why}"
                ),
            );
        }
    };
    let mut found =
        Verification { settings: &settings, sender: String::new(), now: core.clock.now(), rows: Vec::new(), more: 0 };
    let decided = found.look(sender, &address).await;
    if let Err(reply) = decided {
        found.refuse(&address, &reply);
    }
    let Verification { rows, more, .. } = found;
    let hostname = settings.config.hostname.clone();
    ControlReply::Verified(Box::new(VerifyView { hostname, address: to.to_owned(), rows, more }))
}

/// The fate of mail to an address at this server, in words, at most [`WORDS_MAX`]; empty if it goes to its domain's
/// hosts.
pub async fn describe_targets(core: &Arc<Core>, address: &Address) -> Vec<String> {
    let settings = core.settings();
    let mut found =
        Verification { settings: &settings, sender: String::new(), now: core.clock.now(), rows: Vec::new(), more: 0 };
    if let Err(reply) = found.look(None, address).await {
        return vec![format!("refused: {reply}")];
    }
    let Verification { rows, more, .. } = found;
    let mut words: Vec<String> = Vec::new();
    for row in &rows {
        words.extend(target(core, address, row).await);
    }
    let more = more + words.len().saturating_sub(WORDS_MAX) as u64;
    words.truncate(WORDS_MAX);
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    words
}

async fn target(core: &Arc<Core>, address: &Address, row: &VerifyRow) -> Option<String> {
    if let Some(reply) = &row.refused {
        return Some(format!("{}: refused: {reply}", row.address));
    }
    let list = core.settings().list(&row.user).map(|list| list.settings().clone()).filter(|_| row.mailer == LIST);
    let Some(list) = list else {
        let is_itself = row.address == address.as_str();
        return match row.mailer.as_str() {
            LIST => Some(row.user.clone()),
            "discard" => Some("discarded by a rule".to_owned()),
            "prog" | "*file*" => Some(format!("for {}", row.user)),
            _ if is_itself => None,
            _ => Some(format!("for {}", row.address)),
        };
    };
    // As a post would resolve them.
    let subscribers = match core.lists.refresh(core, &list.name).await {
        Ok(()) => {
            let count = core.with(|hub, _| hub.store.list(&list.name).map_or(0, |list| list.ids.len() as u64));
            plural(count, "subscriber")
        }
        Err(reply) => reply.text.to_string(),
    };
    let owner = list.owner.map_or_else(|| "no owner".to_owned(), |owner| format!("owner {owner}"));
    Some(format!("list {}: {subscribers}, {owner}, bounces to {}", list.name, list.bounces))
}

struct Verification<'a> {
    settings: &'a Settings,
    /// The sender as rules see it; empty for the null path.
    sender: String,
    now: Ms,
    rows: Vec<VerifyRow>,
    /// Number of rows beyond [`ROWS_MAX`].
    more: u64,
}

impl Verification<'_> {
    /// Decides, and follows the decision. The error refuses the address as a whole.
    async fn look(&mut self, sender: Option<Address>, to: &Address) -> Result<(), Reply> {
        let settings = self.settings;
        let is_rewriting = !settings.rules.addresses.rewriting.is_empty();
        if let Some(sender) = sender {
            let new =
                if is_rewriting { canonical(settings, &sender, AddressRole::Sender, None, None).await? } else { None };
            new.unwrap_or(sender).as_str().clone_into(&mut self.sender);
        }
        let new = if is_rewriting { canonical(settings, to, AddressRole::Recipient, None, None).await? } else { None };
        let to = new.unwrap_or_else(|| to.clone());
        let Decision { outcome, marks, .. } = {
            let (from, recipient) = (settings.rules.key_of(&self.sender), settings.rules.key_of(to.as_str()));
            let decider = Decider { settings, speaker: SPEAKER, sender: &from, now: self.now };
            let facts = decider.facts(&recipient, &to);
            let tables = settings.tables.questions();
            tables.settle(|tables| settings.rules.decide(&facts, tables, None)).await
        };
        match (outcome, marks.redirect) {
            (Outcome::Refuse(reply) | Outcome::Local(AddressClass::Refuse(reply)), _) => return Err(reply),
            (Outcome::Discard(_), _) => self.add(VerifyRow::new(to.as_str(), "discard", "", to.as_str())),
            (_, Some((to, _))) => self.redirected(&to).await?,
            (Outcome::Relay(hop), None) => self.hop(&to, &hop),
            (Outcome::Local(AddressClass::Relay), None) => self.hop(&to, &NextHop::Mx),
            (Outcome::Local(AddressClass::List(name)), None) => self.add(VerifyRow::new(to.as_str(), LIST, "", &name)),
            (Outcome::Local(AddressClass::Bounces(name)), None) => {
                self.add(VerifyRow::new(to.as_str(), LIST, "", &format!("reports about posts of {name}")));
            }
            (Outcome::Local(AddressClass::Command { list, command }), None) => {
                self.add(VerifyRow::new(to.as_str(), LIST, "", &format!("command {} to {list}", command.word())));
            }
            (Outcome::Local(AddressClass::Alias(expansion)), None) => {
                self.expanded(&to, &expansion, marks.route.as_ref()).await?;
            }
        }
        Ok(())
    }

    async fn redirected(&mut self, to: &Address) -> Result<(), Reply> {
        let found = self.settings.readers_of(to, self.now).await.map_err(IntakeRefusal::reply)?;
        if found.is_nobody() {
            return Err(Reply::fixed(451, Enhanced::new(4, 3, 5), "A rule redirects it to an unknown address"));
        }
        for one in &found.people {
            self.routed(&one.to.address, None).await?;
        }
        for list in &found.lists {
            self.add(VerifyRow::new(to.as_str(), LIST, "", list));
        }
        if found.has_null {
            self.add(VerifyRow::new(to.as_str(), "*file*", "", "/dev/null"));
        }
        Ok(())
    }

    async fn expanded(
        &mut self,
        to: &Address,
        expansion: &Expansion,
        route: Option<&(NextHop, DecisionReason)>,
    ) -> Result<(), Reply> {
        for one in expansion.addresses.iter().chain(expansion.owned.iter().flat_map(|(_, all)| all)) {
            self.routed(one, route).await?;
        }
        for program in &expansion.programs {
            let mailer = if program.text.starts_with('|') { "prog" } else { "*file*" };
            self.add(VerifyRow::new(&program.text, mailer, "", &program.text));
        }
        for list in &expansion.lists {
            self.add(VerifyRow::new(to.as_str(), LIST, "", list));
        }
        if expansion.has_null {
            self.add(VerifyRow::new("/dev/null", "*file*", "", "/dev/null"));
        }
        Ok(())
    }

    /// Adds a target that the client did not name, and looks up its next hop. `route`: the one that a rule names for
    /// the alias.
    async fn routed(&mut self, to: &Address, route: Option<&(NextHop, DecisionReason)>) -> Result<(), Reply> {
        if self.rows.len() == ROWS_MAX {
            self.more += 1;
            return Ok(());
        }
        let sender = self.settings.rules.key_of(&self.sender);
        let tables = self.settings.tables.questions();
        let decider = Decider { settings: self.settings, speaker: SPEAKER, sender: &sender, now: self.now };
        match decider.route_of(&tables, to, route, None).await {
            Ok((hop, _)) => self.hop(to, &hop),
            Err(reply) => self.refuse(to, &reply),
        }
        Ok(())
    }

    fn hop(&mut self, to: &Address, hop: &NextHop) {
        let named = match hop {
            NextHop::Named(name) => self.settings.rules.hops.get(name).map(|hosts| NextHop::Hosts(hosts.clone())),
            _ => None,
        };
        match named.as_ref().unwrap_or(hop) {
            NextHop::Refuse(reply) => self.refuse(to, reply),
            NextHop::Mx => self.add(VerifyRow::new(to.as_str(), "esmtp", to.domain(), to.as_str())),
            hop => {
                let is_lmtp = matches!(hop, NextHop::Hosts(hosts) if hosts.iter().all(|host| host.lmtp));
                let mailer = if is_lmtp { "lmtp" } else { "esmtp" };
                self.add(VerifyRow::new(to.as_str(), mailer, &hop.to_string(), to.as_str()));
            }
        }
    }

    fn refuse(&mut self, to: &Address, reply: &Reply) {
        let (refused, is_temporary) = (Some(reply.to_string()), reply.is_temporary());
        self.add(VerifyRow { refused, is_temporary, address: to.as_str().to_owned(), ..VerifyRow::default() });
    }

    fn add(&mut self, row: VerifyRow) {
        if self.rows.len() == ROWS_MAX { self.more += 1 } else { self.rows.push(row) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Keys without a domain mean local recipients, including targets of aliases.
    const CONFIG: &str = r#"
[domains]
local = ["local.test"]

[tables.access]
as = "sendmail-access"
[tables.access.inline]
"To:ann@" = "127.0.0.9:26"

[routing]
tables = ["access"]
"#;

    #[tokio::test]
    async fn a_target_is_routed_by_the_keys_of_its_domain() {
        let config = stentor_config::check_text(Path::new("stentor.toml"), CONFIG).expect("it is usable");
        let settings = Settings::new(config, None);
        let mut found = Verification { settings: &settings, sender: String::new(), now: 0, rows: Vec::new(), more: 0 };
        for to in ["ann@local.test", "ann@elsewhere.test"] {
            found.routed(&to.parse().expect("an address"), None).await.expect("rows are for all");
        }
        let hosts: Vec<&str> = found.rows.iter().map(|row| &*row.host).collect();
        assert_eq!(hosts, ["127.0.0.9:26", "elsewhere.test"]);
    }
}
