//! Who reads mail to an address that the server names itself, people or programs: a list's owner, the sender of what is returned, who is
//! told of a post.
//!
//! Promise: the same look-ups as for a recipient that a client names. A local address that nobody has leads to nobody.
//!
//! Failure: a table that cannot be asked, or has something wrong for this address, is [`Refused::Table`]: whoever asked tries again.

use std::net::Ipv4Addr;
use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_policy::{Expansion, Program, Verdict};
use stentor_queue::ids::Ms;

use super::Settings;
use super::envelope::To;
use super::intake::Refused;

/// Days since the Unix epoch.
pub fn today(now: Ms) -> u64 {
    now / (24 * 3_600_000)
}

/// What an address leads to.
#[derive(Debug, Default)]
pub struct Readers {
    pub people: Vec<Reader>,
    /// Lists that it is or stands for, whose subscribers are not among the people.
    pub lists: Vec<Arc<str>>,
    /// Whether it stands for `/dev/null`, by itself or beside the others.
    pub has_null: bool,
}

/// One who reads mail to an address.
#[derive(Debug, Clone)]
pub struct Reader {
    pub to: To,
    /// Who owns the alias that led here: the sender of what is forwarded, who reads what comes back.
    pub owner: Option<Address>,
}

impl Reader {
    fn plain(address: Address) -> Reader {
        Reader { to: To::plain(address), owner: None }
    }
}

impl Readers {
    pub fn is_nobody(&self) -> bool {
        self.people.is_empty() && self.lists.is_empty() && !self.has_null
    }

    /// Whether the address stands for other people, so that its mail is forwarded.
    pub fn stand_behind(&self, address: &Address) -> bool {
        self.people.iter().any(|reader| reader.to.address != *address)
    }
}

impl Settings {
    /// Who reads mail to an address; a list's bounce address means the list's owner.
    pub async fn people(&self, address: &Address, now: Ms) -> Result<Vec<To>, Refused> {
        Ok(recipients(self.readers_of(address, now).await?))
    }

    /// The same with the lists that it leads to.
    pub async fn readers_of(&self, address: &Address, now: Ms) -> Result<Readers, Refused> {
        match self.policy.rcpt(Ipv4Addr::LOCALHOST.into(), address) {
            Verdict::Bounces(list) => {
                let people = self.owners(&list, now).await?.into_iter().map(|to| Reader { to, owner: None });
                Ok(Readers { people: people.collect(), ..Readers::default() })
            }
            verdict => self.readers(address, verdict, now).await,
        }
    }

    /// Who reads the reports about a list's posts.
    pub async fn owners(&self, list: &str, now: Ms) -> Result<Vec<To>, Refused> {
        let owner = self.list(list).and_then(|list| list.settings().owner.clone());
        let Some(owner) = owner else { return Ok(Vec::new()) };
        match self.policy.rcpt(Ipv4Addr::LOCALHOST.into(), &owner) {
            // It would lead back here.
            Verdict::Bounces(_) => Ok(Vec::new()),
            verdict => Ok(recipients(self.readers(&owner, verdict, now).await?)),
        }
    }

    /// The next hop of programs and files of alias files.
    pub fn program(&self) -> Option<Arc<str>> {
        Some(self.rules.addresses.programs.clone())
    }

    async fn readers(&self, address: &Address, verdict: Verdict, now: Ms) -> Result<Readers, Refused> {
        if self.rules.addresses.is_empty() {
            let (people, lists) = match verdict {
                Verdict::Alias(expansion) => {
                    (expansion.addresses.iter().cloned().map(Reader::plain).collect(), expansion.lists.clone())
                }
                Verdict::List(list) => (Vec::new(), vec![list]),
                Verdict::Bounces(_) => Default::default(),
                Verdict::Relay | Verdict::Refuse(_) if self.policy.is_local_domain(address.domain()) => {
                    Default::default()
                }
                Verdict::Relay | Verdict::Refuse(_) => (vec![Reader::plain(address.clone())], Vec::new()),
            };
            return Ok(Readers { people, lists, has_null: false });
        }
        let tables = self.tables.questions();
        match tables.settle(|tables| self.rules.people((address, today(now)), tables)).await {
            Ok(found) => {
                let Expansion { addresses, lists, owned, programs, has_null } = found;
                let owned = owned.into_iter().flat_map(|(owner, all)| {
                    all.into_iter().map(move |to| Reader { owner: Some(owner.clone()), ..Reader::plain(to) })
                });
                let program = |Program { address, owner, .. }| {
                    let to = To { hop: self.program(), ..To::plain(address) };
                    Reader { to, owner }
                };
                let people = addresses.into_iter().map(Reader::plain).chain(owned);
                let people = people.chain(programs.into_iter().map(program)).collect();
                Ok(Readers { people, lists, has_null })
            }
            Err(reply) => {
                tracing::warn!(%address, "who reads mail to this address cannot be found out now: {reply}");
                Err(Refused::Table)
            }
        }
    }
}

fn recipients(found: Readers) -> Vec<To> {
    found.people.into_iter().map(|reader| reader.to).collect()
}
