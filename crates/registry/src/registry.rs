//! The handle that the server's parts share: look-ups in memory, changes through the writer's thread.
//!
//! Promise: a change is durable and in force when its future resolves with `Ok`. At most [`JOBS_MAX`] changes wait for
//! the writer, further ones in their callers. Failure: a [`RegistryError`]; then nothing of the change has happened.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::confirmations::{Confirmation, OfferEffect, OfferPause, digest};
use crate::dkim::{DkimState, STATE_BYTES_MAX};
use crate::error::{OpenRegistryError, RegistryError, RegistryTrouble};
use crate::index::{SuppressionIndex, SuppressionMatch};
use crate::members::{DeliveryChange, Departure, JoinEffect, ListMember, Member, MemberAddition, MemberQuery};
use crate::roster::{RosterDelta, RosterIndex};
use crate::sqlite::SqliteStore;
use crate::store::{
    EntryEffect, ListedSuppressions, RegistryChange, RegistryEffect, RegistryStore, RegistryStoreError,
    SuppressionQuery,
};
use crate::suppression::{Subject, Suppression, SuppressionKey};
use crate::writer::{RegistryJob, Writer, insert};
use crate::{ENTRIES_PER_CHANGE_MAX, FILE, Ms};

/// Jobs that wait for the writer; more wait in their callers.
const JOBS_MAX: usize = 256;
/// Rows of one listing at most.
const ROWS_MAX: usize = 1_000;
/// Members of one listing at most.
pub const MEMBER_ROWS_MAX: usize = 10_000;

pub struct AddressRegistry {
    index: Arc<SuppressionIndex>,
    rosters: Arc<RosterIndex>,
    jobs: mpsc::Sender<RegistryJob>,
    trouble: Arc<Mutex<Option<RegistryTrouble>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The durable states of DKIM keys, by domain.
    dkim: Mutex<HashMap<String, String>>,
}

impl AddressRegistry {
    /// Opens or creates the registry in the data folder, and reads its entries.
    pub fn open(data_dir: &Path) -> Result<AddressRegistry, OpenRegistryError> {
        let path = data_dir.join(FILE);
        AddressRegistry::start(Box::new(SqliteStore::open(&path)?), &path)
    }

    /// Creates a registry that is gone when it is dropped, for simulations.
    pub fn in_memory() -> Result<AddressRegistry, OpenRegistryError> {
        AddressRegistry::start(Box::new(SqliteStore::in_memory()?), Path::new(":memory:"))
    }

    /// Reads the entries of a store, and starts its thread. `path` is for errors.
    pub fn start(mut store: Box<dyn RegistryStore>, path: &Path) -> Result<AddressRegistry, OpenRegistryError> {
        let (index, rosters) = (Arc::new(SuppressionIndex::default()), Arc::new(RosterIndex::default()));
        let loaded = load(&mut *store, &index, &rosters).and_then(|()| store.dkim_states());
        let states =
            loaded.map_err(|error| OpenRegistryError::Damaged { path: path.to_owned(), why: error.to_string() })?;
        let (sender, jobs) = mpsc::channel(JOBS_MAX);
        let trouble = Arc::default();
        let writer =
            Writer { store, index: index.clone(), rosters: rosters.clone(), trouble: Arc::clone(&trouble), jobs };
        let thread = std::thread::Builder::new().name("registry".to_owned()).spawn(move || writer.run());
        let thread = thread.map_err(|error| OpenRegistryError::Thread(error.to_string()))?;
        let dkim = states.into_iter().map(|DkimState { domain, state }| (domain, state)).collect();
        let (thread, dkim) = (Mutex::new(Some(thread)), Mutex::new(dkim));
        Ok(AddressRegistry { index, rosters, jobs: sender, trouble, thread, dkim })
    }

    /// Returns why nothing is sent from `sender` to `address`, if so. `list`: the name of the list, if the message is a
    /// post to one. `sender`: the envelope's sender, empty for the null path. Answered from memory.
    pub fn is_suppressed(&self, address: &str, list: Option<&str>, sender: &str, now: Ms) -> Option<SuppressionMatch> {
        self.index.find(address, list, sender, now)
    }

    /// Adds an entry, which is durable and in force when this returns `Ok`. Repeating it changes nothing.
    pub async fn suppress(&self, entry: Suppression) -> Result<EntryEffect, RegistryError> {
        let effects = self.suppress_all(vec![entry]).await?;
        Ok(effects.first().copied().unwrap_or(EntryEffect::Unchanged))
    }

    /// Adds up to [`ENTRIES_PER_CHANGE_MAX`] entries: all of them or none.
    pub async fn suppress_all(&self, entries: Vec<Suppression>) -> Result<Vec<EntryEffect>, RegistryError> {
        check(&entries)?;
        match self.change(RegistryChange::Add(entries)).await? {
            RegistryEffect::Added(effects) => Ok(effects),
            _ => Ok(Vec::new()),
        }
    }

    /// Removes entries, and returns for each whether it was there.
    pub async fn remove(&self, keys: Vec<SuppressionKey>) -> Result<Vec<bool>, RegistryError> {
        limit(keys.len())?;
        match self.change(RegistryChange::Remove(keys)).await? {
            RegistryEffect::Removed(removed) => Ok(removed),
            _ => Ok(Vec::new()),
        }
    }

    /// Deletes some entries that ended before `before`. Returns their number: 0 when none is left.
    pub async fn delete_expired(&self, before: Ms) -> Result<usize, RegistryError> {
        match self.change(RegistryChange::DeleteExpired { before, max: ENTRIES_PER_CHANGE_MAX }).await? {
            RegistryEffect::Expired(keys) => Ok(keys.len()),
            _ => Ok(0),
        }
    }

    /// Lists entries in the order of subject and scope; a page has up to 1,000 rows, and may have none although there
    /// are more.
    pub async fn list(&self, mut query: SuppressionQuery) -> Result<ListedSuppressions, RegistryError> {
        query.rows_max = query.rows_max.clamp(1, ROWS_MAX);
        self.read(move |store| store.list(&query)).await
    }

    /// Adds up to [`ENTRIES_PER_CHANGE_MAX`] members to a list. Returns for each what became of it.
    pub async fn join(&self, new: MemberAddition) -> Result<Vec<JoinEffect>, RegistryError> {
        limit(new.members.len())?;
        new.members.iter().try_for_each(Member::check).map_err(RegistryError::Invalid)?;
        match self.change(RegistryChange::Join(new)).await? {
            RegistryEffect::Joined { effects, .. } => Ok(effects),
            _ => Ok(Vec::new()),
        }
    }

    /// Changes which posts members get. Returns for each whether it is a member.
    pub async fn set_delivery(&self, change: DeliveryChange) -> Result<Vec<bool>, RegistryError> {
        limit(change.subjects.len())?;
        match self.change(RegistryChange::SetDelivery(change)).await? {
            RegistryEffect::DeliverySet(all) => Ok(all),
            _ => Ok(Vec::new()),
        }
    }

    /// Deletes some members of a list that no longer exists. Returns their number: 0 when none is left.
    pub async fn delete_members(&self, list: &str) -> Result<usize, RegistryError> {
        let change = RegistryChange::DeleteMembers { list: list.to_owned(), max: ENTRIES_PER_CHANGE_MAX };
        match self.change(change).await? {
            RegistryEffect::MembersDeleted(count) => Ok(count),
            _ => Ok(0),
        }
    }

    /// Lists members; a page has up to [`MEMBER_ROWS_MAX`] rows.
    pub async fn members(&self, mut query: MemberQuery) -> Result<Vec<ListMember>, RegistryError> {
        query.rows_max = query.rows_max.clamp(1, MEMBER_ROWS_MAX);
        self.read(move |store| store.members(&query)).await
    }

    /// As [`AddressRegistry::members`], for a thread that may block.
    pub fn members_blocking(&self, query: MemberQuery) -> Result<Vec<ListMember>, RegistryError> {
        let (answer, ticket) = oneshot::channel();
        let job = RegistryJob::Read(Box::new(move |store: &mut dyn RegistryStore| {
            let _ = answer.send(store.members(&query));
        }));
        self.jobs.blocking_send(job).map_err(|_| RegistryError::Stopping)?;
        ticket.blocking_recv().map_or(Err(RegistryError::Stopping), |listed| listed.map_err(RegistryError::from))
    }

    /// Returns the latest ends of a person's memberships.
    pub async fn departures(&self, subject: Subject, rows_max: usize) -> Result<Vec<Departure>, RegistryError> {
        let rows_max = rows_max.clamp(1, ROWS_MAX);
        self.read(move |store| store.departures(&subject, rows_max)).await
    }

    /// Returns what changed in a list since the stamp `from`; `None` if nothing did. Answered from memory.
    pub fn roster_since(&self, list: &str, from: Option<&str>) -> Option<RosterDelta> {
        self.rosters.since(list, from)
    }

    /// Whether a person is a member of the list who gets no posts. Answered from memory.
    pub fn is_silent_member(&self, list: &str, subject: &Subject) -> bool {
        self.rosters.is_silent(list, subject)
    }

    /// Number of members of a list. Answered from memory.
    pub fn member_count(&self, list: &str) -> u64 {
        self.rosters.members(list)
    }

    /// Stores a confirmation under a token. Only if it was offered, the person is mailed.
    pub async fn offer(
        &self,
        token: &str,
        confirmation: Confirmation,
        pause: OfferPause,
    ) -> Result<OfferEffect, RegistryError> {
        let change = RegistryChange::Offer { token: digest(token), confirmation, pause };
        match self.change(change).await? {
            RegistryEffect::Offer(effect) => Ok(effect),
            _ => Ok(OfferEffect::MailedRecently),
        }
    }

    /// Looks at a confirmation without using it up.
    pub async fn confirmation(&self, token: &str, now: Ms) -> Result<Option<Confirmation>, RegistryError> {
        let token = digest(token);
        self.read(move |store| store.confirmation(&token, now)).await
    }

    /// Uses a confirmation up: joins or leaves, durable when this returns. `None`: the token is unknown, used up or
    /// expired.
    pub async fn confirm(&self, token: &str, now: Ms) -> Result<Option<Confirmation>, RegistryError> {
        match self.change(RegistryChange::Confirm { token: digest(token), now }).await? {
            RegistryEffect::Confirmed { confirmation, .. } => Ok(confirmation.map(|found| *found)),
            _ => Ok(None),
        }
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn RegistryStore) -> Result<T, RegistryStoreError> + Send + 'static,
    ) -> Result<T, RegistryError> {
        let (answer, ticket) = oneshot::channel();
        let job = RegistryJob::Read(Box::new(move |store: &mut dyn RegistryStore| {
            // A caller that has left needs no answer.
            let _ = answer.send(read(store).map_err(RegistryError::from));
        }));
        self.ask(job, ticket).await
    }

    /// Returns the durable state of a domain's DKIM keys. Answered from memory.
    pub fn dkim_state(&self, domain: &str) -> Option<String> {
        self.dkim.lock().get(domain).cloned()
    }

    /// Replaces the state of a domain's DKIM keys, durably.
    pub async fn set_dkim_state(&self, state: DkimState) -> Result<(), RegistryError> {
        if state.state.len() > STATE_BYTES_MAX {
            return Err(RegistryError::DkimState(state.domain));
        }
        self.change(RegistryChange::SetDkimState(state.clone())).await?;
        self.dkim.lock().insert(state.domain, state.state);
        Ok(())
    }

    /// Number of entries, expired ones included until they are deleted.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Octets of the index in memory.
    pub fn heap_bytes(&self) -> usize {
        self.index.heap_bytes()
    }

    /// Returns why changes are refused, if they are.
    pub fn trouble(&self) -> Option<RegistryTrouble> {
        self.trouble.lock().clone()
    }

    /// Ends the thread after the changes sent so far, and closes the database. Blocks until that is done; later changes
    /// are refused.
    pub fn close(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let mut stop = RegistryJob::Stop;
            // The channel may be full for a moment; a closed one means that the thread has ended.
            while let Err(mpsc::error::TrySendError::Full(back)) = self.jobs.try_send(stop) {
                stop = back;
                std::thread::sleep(CLOSE_PAUSE);
            }
            if thread.join().is_err() {
                tracing::error!("the registry's thread panicked");
            }
        }
    }

    async fn change(&self, change: RegistryChange) -> Result<RegistryEffect, RegistryError> {
        let (answer, ticket) = oneshot::channel();
        self.ask(RegistryJob::Change { change, answer }, ticket).await
    }

    async fn ask<T>(
        &self,
        job: RegistryJob,
        ticket: oneshot::Receiver<Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        self.jobs.send(job).await.map_err(|_| RegistryError::Stopping)?;
        ticket.await.unwrap_or(Err(RegistryError::Stopping))
    }
}

fn load(
    store: &mut dyn RegistryStore,
    index: &SuppressionIndex,
    rosters: &RosterIndex,
) -> Result<(), RegistryStoreError> {
    store.load(&mut |entry| insert(index, entry))?;
    for state in store.rosters()? {
        rosters.load(state);
    }
    store.silent(&mut |row| rosters.load_silent(row))
}

/// Pause between attempts to hand the stop to a busy writer.
const CLOSE_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

fn check(entries: &[Suppression]) -> Result<(), RegistryError> {
    limit(entries.len())?;
    entries.iter().try_for_each(Suppression::check).map_err(RegistryError::Invalid)
}

fn limit(entries: usize) -> Result<(), RegistryError> {
    if entries > ENTRIES_PER_CHANGE_MAX { Err(RegistryError::TooMany(entries)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;
    use crate::members::RosterState;
    use crate::store::Committed;
    use crate::suppression::{Scope, SuppressionReason};

    /// A store that asks the test before each commit, and keeps what it is told to keep.
    struct AskedStore {
        /// Changes of each commit.
        begun: std_mpsc::Sender<usize>,
        verdicts: std_mpsc::Receiver<Result<(), RegistryStoreError>>,
    }

    impl RegistryStore for AskedStore {
        fn dkim_states(&mut self) -> Result<Vec<DkimState>, RegistryStoreError> {
            Ok(Vec::new())
        }

        fn load(&mut self, entry: &mut dyn FnMut(&Suppression)) -> Result<(), RegistryStoreError> {
            entry(&suppression("loaded@x.example"));
            Ok(())
        }

        fn commit(&mut self, changes: &[RegistryChange]) -> Result<Committed, RegistryStoreError> {
            self.begun.send(changes.len()).unwrap();
            self.verdicts.recv().unwrap()?;
            let effect = |change: &RegistryChange| match change {
                RegistryChange::SetDkimState(_) => RegistryEffect::DkimStateSet,
                RegistryChange::Add(entries) => RegistryEffect::Added(vec![EntryEffect::Added; entries.len()]),
                RegistryChange::Remove(keys) => RegistryEffect::Removed(vec![true; keys.len()]),
                RegistryChange::DeleteExpired { .. } => RegistryEffect::Expired(Vec::new()),
                _ => unreachable!("these tests change only suppressions"),
            };
            Ok(Committed { effects: changes.iter().map(effect).collect(), rosters: Vec::new() })
        }

        fn rosters(&mut self) -> Result<Vec<RosterState>, RegistryStoreError> {
            Ok(Vec::new())
        }

        fn silent(&mut self, _: &mut dyn FnMut(&ListMember)) -> Result<(), RegistryStoreError> {
            Ok(())
        }

        fn members(&mut self, _: &MemberQuery) -> Result<Vec<ListMember>, RegistryStoreError> {
            Ok(Vec::new())
        }

        fn departures(&mut self, _: &Subject, _: usize) -> Result<Vec<Departure>, RegistryStoreError> {
            Ok(Vec::new())
        }

        fn confirmation(&mut self, _: &[u8; 32], _: Ms) -> Result<Option<Confirmation>, RegistryStoreError> {
            Ok(None)
        }

        fn list(&mut self, _: &SuppressionQuery) -> Result<ListedSuppressions, RegistryStoreError> {
            Ok(ListedSuppressions::default())
        }
    }

    struct Bench {
        registry: Arc<AddressRegistry>,
        begun: std_mpsc::Receiver<usize>,
        verdicts: std_mpsc::Sender<Result<(), RegistryStoreError>>,
        runtime: tokio::runtime::Runtime,
    }

    impl Bench {
        fn new() -> Bench {
            let ((begin, begun), (verdicts, told)) = (std_mpsc::channel(), std_mpsc::channel());
            let store = AskedStore { begun: begin, verdicts: told };
            let registry = AddressRegistry::start(Box::new(store), Path::new("x")).unwrap();
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
            Bench { registry: Arc::new(registry), begun, verdicts, runtime }
        }

        fn add(&self, address: &str) -> tokio::task::JoinHandle<Result<EntryEffect, RegistryError>> {
            let (registry, entry) = (self.registry.clone(), suppression(address));
            self.runtime.spawn(async move { registry.suppress(entry).await })
        }

        fn has(&self, address: &str) -> bool {
            self.registry.is_suppressed(address, None, "", 0).is_some()
        }
    }

    fn suppression(address: &str) -> Suppression {
        let subject = Subject::parse(address).unwrap();
        Suppression::new(subject, Scope::Everything, SuppressionReason::Bounce, "test", 1)
    }

    #[test]
    fn changes_that_wait_share_a_transaction_and_are_in_force_once_it_is_durable() {
        let bench = Bench::new();
        assert!(bench.has("loaded@x.example"));
        let first = bench.add("first@x.example");
        assert_eq!(bench.begun.recv(), Ok(1));
        let others: Vec<_> = (0..20).map(|n| bench.add(&format!("{n}@x.example"))).collect();
        // All of them have been sent, and wait for the first commit.
        while bench.registry.jobs.capacity() > JOBS_MAX - others.len() {
            std::thread::yield_now();
        }
        assert!(!bench.has("first@x.example") && !first.is_finished(), "not durable yet");
        bench.verdicts.send(Ok(())).unwrap();
        assert_eq!(bench.runtime.block_on(first).unwrap(), Ok(EntryEffect::Added));
        assert!(bench.has("first@x.example"));
        assert_eq!(bench.begun.recv(), Ok(20), "one transaction");
        bench.verdicts.send(Ok(())).unwrap();
        for other in others {
            assert_eq!(bench.runtime.block_on(other).unwrap(), Ok(EntryEffect::Added));
        }
        assert_eq!(bench.registry.len(), 22);
    }

    #[test]
    fn a_refused_change_is_not_in_force_and_the_trouble_is_told() {
        let bench = Bench::new();
        for (verdict, error, is_full) in [
            (RegistryStoreError::Full, RegistryError::Full, true),
            (RegistryStoreError::Failed("I/O".to_owned()), RegistryError::Failed("I/O".to_owned()), false),
        ] {
            bench.verdicts.send(Err(verdict)).unwrap();
            assert_eq!(bench.runtime.block_on(bench.add("a@x.example")).unwrap(), Err(error));
            assert!(!bench.has("a@x.example") && bench.has("loaded@x.example"));
            assert_eq!(bench.registry.trouble().map(|trouble| trouble.is_full), Some(is_full));
        }
        bench.verdicts.send(Ok(())).unwrap();
        bench.runtime.block_on(bench.add("a@x.example")).unwrap().unwrap();
        assert_eq!(bench.registry.trouble(), None);
    }

    #[test]
    fn states_of_dkim_keys_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = |domain: &str, state: &str| DkimState { domain: domain.to_owned(), state: state.to_owned() };
        let registry = AddressRegistry::open(folder.path()).unwrap();
        for state in [state("a.example", "1"), state("b.example", "2"), state("a.example", "3")] {
            runtime.block_on(registry.set_dkim_state(state)).unwrap();
        }
        let long = state("a.example", &"x".repeat(STATE_BYTES_MAX + 1));
        assert!(matches!(runtime.block_on(registry.set_dkim_state(long)), Err(RegistryError::DkimState(_))));
        registry.close();
        let refused = runtime.block_on(registry.set_dkim_state(state("a.example", "4")));
        assert_eq!(refused, Err(RegistryError::Stopping));
        let registry = AddressRegistry::open(folder.path()).unwrap();
        assert_eq!(registry.dkim_state("a.example").as_deref(), Some("3"));
        assert_eq!(registry.dkim_state("b.example").as_deref(), Some("2"));
        assert_eq!(registry.dkim_state("c.example"), None);
    }

    #[test]
    fn invalid_changes_never_reach_the_store() {
        let bench = Bench::new();
        let many = vec![suppression("a@x.example"); ENTRIES_PER_CHANGE_MAX + 1];
        let refused = bench.runtime.block_on(bench.registry.suppress_all(many));
        assert_eq!(refused, Err(RegistryError::TooMany(ENTRIES_PER_CHANGE_MAX + 1)));
        let long = Suppression { note: "x".repeat(1_000).into(), ..suppression("a@x.example") };
        let refused = bench.runtime.block_on(bench.registry.suppress(long));
        assert!(matches!(refused, Err(RegistryError::Invalid(_))));
        assert!(bench.begun.try_recv().is_err());
    }

    #[test]
    fn closing_waits_for_earlier_changes_and_refuses_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(AddressRegistry::open(folder.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(registry.suppress(suppression("a@x.example"))).unwrap();
        registry.close();
        registry.close();
        let refused = runtime.block_on(registry.suppress(suppression("b@x.example")));
        assert_eq!(refused, Err(RegistryError::Stopping));
        let registry = AddressRegistry::open(folder.path()).expect("it was closed");
        assert_eq!(registry.len(), 1);
        assert!(!folder.path().join("registry.sqlite-shm").exists(), "the index of the WAL is in memory");
    }
}
