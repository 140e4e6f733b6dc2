//! Resolves addresses that the server itself names to the people or programs that read their mail: a list's owner, the
//! sender of returned mail, the recipients of a notice about a post.
//!
//! Promise: the look-ups are those for a recipient that a client names. An unknown local address resolves to nobody.
//!
//! Failure: a table that cannot be asked, or has an invalid entry for this address, gives [`IntakeRefusal::Table`]; the
//! caller tries again.

use std::net::Ipv4Addr;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_policy::{AddressClass, Expansion, LocalTarget};
use stentor_queue::ids::Ms;
use stentor_rules::{AddressQuery, NextHop};
use stentor_ruletables::remote::TABLE_CONNECTIONS_MAX;

use super::Settings;
use super::envelope::EnvelopeRcpt;
use super::intake::IntakeRefusal;
use super::route::Route;

/// Addresses looked up at once: as many as a table has connections, so that other look-ups get their turns.
const AT_ONCE: usize = TABLE_CONNECTIONS_MAX;
/// Addresses looked up in memory before other tasks of the thread get a turn.
const TURN_LEN: usize = 256;

/// Returns the days since the Unix epoch.
pub fn today(now: Ms) -> u64 {
    now / (24 * 3_600_000)
}

/// Result of resolving an address.
#[derive(Debug, Default)]
pub struct MailReaders {
    pub people: Vec<MailReader>,
    /// Lists that the address is or is an alias of; their subscribers are not among `people`.
    pub lists: Vec<Arc<str>>,
    /// Whether the address is an alias of `/dev/null`, alone or among others.
    pub has_null: bool,
}

/// A person or program that reads mail to an address.
#[derive(Debug, Clone)]
pub struct MailReader {
    pub to: EnvelopeRcpt,
    /// Owner of the alias that led to this reader: the sender of forwarded mail, and the reader of its bounces.
    pub owner: Option<Address>,
}

impl MailReader {
    fn plain(address: Address) -> MailReader {
        MailReader { to: EnvelopeRcpt::plain(address), owner: None }
    }
}

impl MailReaders {
    pub fn is_nobody(&self) -> bool {
        self.people.is_empty() && self.lists.is_empty() && !self.has_null
    }

    /// Whether the address resolves to other people, so that its mail is forwarded.
    pub fn stand_behind(&self, address: &Address) -> bool {
        self.people.iter().any(|reader| reader.to.address != *address)
    }
}

impl Settings {
    /// Returns the readers of reports to an address, which have the null sender. A list's bounce address resolves to
    /// the list's owner.
    pub async fn people(&self, address: &Address, now: Ms) -> Result<Vec<EnvelopeRcpt>, IntakeRefusal> {
        let query = AddressQuery { address, today: today(now), is_report: true };
        let found = self.read_by(query, now).await;
        Ok(recipients(found.map_err(|reply| cannot_say(address, &reply))?))
    }

    /// Returns the readers of other mail to an address, and its lists.
    pub async fn readers_of(&self, address: &Address, now: Ms) -> Result<MailReaders, IntakeRefusal> {
        let query = AddressQuery { address, today: today(now), is_report: false };
        self.read_by(query, now).await.map_err(|reply| cannot_say(address, &reply))
    }

    /// Resolves an address like [`Settings::readers_of`].
    ///
    /// # Errors
    /// The temporary reply to a client that names the address: a table cannot be asked, or has an invalid entry for it.
    pub async fn found_at(&self, address: &Address, now: Ms) -> Result<MailReaders, Reply> {
        self.read_by(AddressQuery { address, today: today(now), is_report: false }, now).await
    }

    /// Resolves many addresses with [`Settings::found_at`], some concurrently. `take` gets the results in the order of
    /// the addresses; its first error ends the look-ups.
    ///
    /// # Errors
    /// The error of `take`.
    pub async fn found_at_each(
        &self,
        addresses: &[Address],
        now: Ms,
        mut take: impl FnMut(&Address, Result<MailReaders, Reply>) -> Result<(), Reply>,
    ) -> Result<(), Reply> {
        let (mut rest, mut lookups) = (addresses.iter(), FuturesOrdered::new());
        for (n, address) in addresses.iter().enumerate() {
            while lookups.len() < AT_ONCE
                && let Some(next) = rest.next()
            {
                lookups.push_back(self.found_at(next, now));
            }
            let Some(found) = lookups.next().await else { break };
            take(address, found)?;
            if n % TURN_LEN == TURN_LEN - 1 {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn read_by(&self, query: AddressQuery<'_>, now: Ms) -> Result<MailReaders, Reply> {
        let address = query.address;
        match self.policy.rcpt(Ipv4Addr::LOCALHOST.into(), address) {
            AddressClass::Bounces(list) => {
                let owners = self.owners(&list, now).await.map_err(IntakeRefusal::reply)?;
                let people = owners.into_iter().map(|to| MailReader { to, owner: None });
                Ok(MailReaders { people: people.collect(), ..MailReaders::default() })
            }
            class => self.readers(query, class).await,
        }
    }

    /// Returns the readers of reports about a list's posts.
    pub async fn owners(&self, list: &str, now: Ms) -> Result<Vec<EnvelopeRcpt>, IntakeRefusal> {
        let owner = self.list(list).and_then(|list| list.settings().owner.clone());
        let Some(owner) = owner else { return Ok(Vec::new()) };
        match self.policy.rcpt(Ipv4Addr::LOCALHOST.into(), &owner) {
            // That would lead back here.
            AddressClass::Bounces(_) => Ok(Vec::new()),
            class => {
                let query = AddressQuery { address: &owner, today: today(now), is_report: true };
                let found = self.readers(query, class).await;
                Ok(recipients(found.map_err(|reply| cannot_say(&owner, &reply))?))
            }
        }
    }

    /// Returns the next hop of programs and files from alias files.
    pub fn program(&self) -> Option<Arc<NextHop>> {
        self.rules.addresses.programs.clone()
    }

    async fn readers(&self, query: AddressQuery<'_>, class: AddressClass) -> Result<MailReaders, Reply> {
        let address = query.address;
        if self.rules.addresses.is_empty() {
            let (people, lists) = match class {
                AddressClass::Alias(expansion) => {
                    (expansion.addresses.iter().cloned().map(MailReader::plain).collect(), expansion.lists.clone())
                }
                AddressClass::List(list) => (Vec::new(), vec![list]),
                AddressClass::Bounces(_) | AddressClass::Command { .. } => Default::default(),
                AddressClass::Relay | AddressClass::Refuse(_) if self.policy.is_local_domain(address.domain()) => {
                    Default::default()
                }
                AddressClass::Relay | AddressClass::Refuse(_) => (vec![MailReader::plain(address.clone())], Vec::new()),
            };
            return Ok(MailReaders { people, lists, has_null: false });
        }
        let tables = self.tables.questions();
        let found = tables.settle(|tables| self.rules.people(query, tables)).await?;
        let Expansion { addresses, lists, owned, programs, has_null } = found;
        let owned = owned.into_iter().flat_map(|(owner, all)| {
            all.into_iter().map(move |to| MailReader { owner: Some(owner.clone()), ..MailReader::plain(to) })
        });
        let program = |LocalTarget { address, owner, .. }| {
            let to = EnvelopeRcpt {
                route: Route { hop: self.program(), ..Route::default() },
                ..EnvelopeRcpt::plain(address)
            };
            MailReader { to, owner }
        };
        let people = addresses.into_iter().map(MailReader::plain).chain(owned);
        let people = people.chain(programs.into_iter().map(program)).collect();
        Ok(MailReaders { people, lists, has_null })
    }
}

fn cannot_say(address: &Address, reply: &Reply) -> IntakeRefusal {
    tracing::warn!(%address, "could not resolve the recipients of this address: {reply}");
    IntakeRefusal::Table
}

fn recipients(found: MailReaders) -> Vec<EnvelopeRcpt> {
    found.people.into_iter().map(|reader| reader.to).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use stentor_mail::reply::Enhanced;

    use super::*;

    /// Open look-ups of the socketmap, and their maximum.
    #[derive(Default)]
    struct Load {
        open: AtomicUsize,
        most: AtomicUsize,
    }

    /// Answers `users nN@shop.example` with `toN@one.example`, each after a delay.
    async fn answer(mut client: TcpStream, load: Arc<Load>) -> std::io::Result<()> {
        loop {
            let mut asked = Vec::new();
            while asked.last() != Some(&b',') {
                asked.push(client.read_u8().await?);
            }
            load.most.fetch_max(load.open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(50)).await;
            load.open.fetch_sub(1, Ordering::SeqCst);
            let asked = String::from_utf8_lossy(&asked).into_owned();
            let number = asked.split_once("users n").and_then(|(_, key)| key.split_once('@')).map(|(number, _)| number);
            let reply = number.map_or_else(|| "NOTFOUND ".to_owned(), |number| format!("OK to{number}@one.example"));
            client.write_all(format!("{}:{reply},", reply.len()).as_bytes()).await?;
        }
    }

    #[tokio::test]
    async fn many_addresses_are_looked_up_at_once_and_answered_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, load) = (listener.local_addr().unwrap().port(), Arc::new(Load::default()));
        let counted = load.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(answer(client, counted.clone()));
            }
        });
        let text = format!(
            "[domains]\nvirtual = [\"shop.example\"]\n[tables.users]\nsource = \"socketmap:inet:127.0.0.1:{port}:users\"\n\
             as = \"virtual\"\n[addresses]\nvirtual = \"users\"\n"
        );
        let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), &text);
        let settings = Settings::new(config.unwrap_or_else(|found| panic!("{text}\n{found:?}")), None);
        let addresses: Vec<Address> = (0..40).map(|n| format!("n{n}@shop.example").parse().unwrap()).collect();
        let mut all = Vec::new();
        let each = settings.found_at_each(&addresses, 0, |address, found| {
            let found = found.unwrap_or_else(|reply| panic!("{address}: {reply}"));
            all.extend(found.people.into_iter().map(|reader| reader.to.address.to_string()));
            Ok(())
        });
        each.await.unwrap();
        let expected: Vec<String> = (0..40).map(|n| format!("to{n}@one.example")).collect();
        assert_eq!(all, expected);
        let most = load.most.load(Ordering::SeqCst);
        assert!((AT_ONCE / 2..=AT_ONCE).contains(&most), "{most} at once");
        // The first error ends the look-ups.
        let mut taken = 0;
        let stopped = settings.found_at_each(&addresses, 0, |_, _| {
            taken += 1;
            Err(Reply::new(451, Enhanced::new(4, 3, 0), "enough"))
        });
        assert_eq!(stopped.await.unwrap_err().code, 451);
        assert_eq!(taken, 1);
    }
}
