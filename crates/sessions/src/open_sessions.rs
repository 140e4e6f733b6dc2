//! Open connections: in total, untrusted, and by client, with a pool for each role of listeners.
//!
//! Promise: a connection is counted for one client at a time, and for none once its [`Admitted`] is dropped. Filling
//! one pool takes nothing from the other. A client that fills a pool keeps no other client out. If untrusted clients
//! have all their places, an idle session of the client with the most places gives its place to one with fewer. On
//! users' listeners all clients are untrusted until they log in. There a client without a session finds a place even if
//! the others have one each: that of the oldest idle session.
//!
//! A login counts as a trusted session, in the pool of its listener.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stentor_config::Role;
use stentor_core::Settings;
use stentor_core::limits::Limit;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::counted_as;
use tokio::sync::Notify;

/// Maximum share of a pool's sessions that have lost their place but are still open; no further session loses its
/// place.
const DISPLACED_PART: usize = 8;

/// The pools of all roles.
#[derive(Default)]
pub struct OpenSessions {
    relay: Pool,
    users: Pool,
}

/// Open sessions of one role: in total, of untrusted clients, and by client (an IPv6 /64 is one client).
#[derive(Default)]
struct Pool {
    total: usize,
    strangers: usize,
    /// Untrusted sessions that have lost their place.
    displaced: usize,
    /// Sessions admitted so far.
    arrivals: u64,
    clients: HashMap<IpAddr, OfClient>,
}

#[derive(Default)]
struct OfClient {
    sessions: usize,
    /// Its untrusted sessions that have a place, in order of arrival.
    places: VecDeque<Arc<SessionSlot>>,
}

impl OfClient {
    /// Returns places of sessions without a transaction.
    fn idle(&self) -> impl Iterator<Item = &Arc<SessionSlot>> {
        self.places.iter().filter(|place| !place.is_busy.load(Ordering::Relaxed))
    }
}

/// The place of an untrusted client's session in its pool.
#[derive(Default)]
pub struct SessionSlot {
    /// Number of the session in its pool, in order of arrival.
    arrival: u64,
    is_displaced: AtomicBool,
    /// The session has a transaction, and keeps its place until that ends.
    is_busy: AtomicBool,
    notify: Notify,
}

/// The client that a connection is counted for.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub client: IpAddr,
    pub trusted: bool,
    /// The client is a proxy, which may have as many connections as all its clients.
    pub is_proxy: bool,
}

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolLimits {
    role: Role,
    sessions_max: usize,
    strangers_max: usize,
    per_client_max: usize,
}

/// Share of the session descriptors for users' listeners, if there are any.
const USERS_PART: usize = 4;

/// Returns how many sessions of a role the descriptors permit. `sessions_max` assumes no milters; each session may have
/// a connection to every milter.
pub fn descriptors(settings: &Settings, sessions_max: usize, role: Role) -> usize {
    let all = sessions_max / (1 + settings.milters.iter().len());
    let has_users = settings.config.listen.listeners().any(|(service, _)| service.role() == Role::Users);
    let of_users = if has_users { all / USERS_PART } else { 0 };
    let of_role = match role {
        Role::Relay => all - of_users,
        Role::Users => of_users,
    };
    of_role.max(1)
}

impl PoolLimits {
    /// Returns the limits of a role. `sessions_max`: sessions that the descriptors permit without milters.
    ///
    /// On listeners for mail from everybody, the last quarter is reserved for trusted clients. On listeners for users,
    /// it is reserved for sessions that have logged in, which no session has on arrival.
    pub fn new(settings: &Settings, sessions_max: usize, role: Role) -> PoolLimits {
        let listen = &settings.config.listen;
        let in_pool = listen.connections_max_of(role) as usize;
        let all = in_pool.min(descriptors(settings, sessions_max, role));
        let per_client_max = listen.connections_per_client_max as usize;
        PoolLimits { role, sessions_max: in_pool, strangers_max: (all - all / 4).max(1), per_client_max }
    }
}

impl OpenSessions {
    /// Returns the open sessions of all roles.
    pub fn total(&self) -> usize {
        self.relay.total + self.users.total
    }

    /// Returns the open sessions of one role.
    pub fn of(&self, role: Role) -> usize {
        match role {
            Role::Relay => self.relay.total,
            Role::Users => self.users.total,
        }
    }

    fn pool(&mut self, role: Role) -> &mut Pool {
        match role {
            Role::Relay => &mut self.relay,
            Role::Users => &mut self.users,
        }
    }
}

impl Pool {
    fn refusal(&self, who: Counted, limits: PoolLimits) -> Option<(Limit, Reply)> {
        let of_client = self.clients.get(&counted_as(who.client)).map_or(0, |client| client.sessions);
        let is_alone = who.trusted || who.is_proxy;
        if self.is_full(who.trusted, limits) {
            let limit = match limits.role {
                Role::Relay => Limit::Connections,
                Role::Users => Limit::SubmissionConnections,
            };
            Some((limit, Reply::fixed(421, Enhanced::new(4, 3, 2), "Too many connections, try again later")))
        } else if !is_alone && of_client >= limits.per_client_max {
            Some((
                Limit::ConnectionsPerClient,
                Reply::fixed(421, Enhanced::new(4, 7, 0), "Too many connections from your address"),
            ))
        } else {
            None
        }
    }

    fn is_full(&self, is_trusted: bool, limits: PoolLimits) -> bool {
        // Sessions that have lost their place are about to end.
        let (total, strangers) = (self.total - self.displaced, self.strangers - self.displaced);
        match (limits.role, is_trusted) {
            (_, true) => total >= limits.sessions_max,
            (Role::Relay, false) => total >= limits.strangers_max,
            (Role::Users, false) => strangers >= limits.strangers_max || total >= limits.sessions_max,
        }
    }

    /// Takes a place from the client with the most untrusted sessions, if that would still have as many as `who`; or,
    /// for a user's first session, takes that of the oldest session. Returns whether a place was taken.
    fn displace_for(&mut self, who: Counted, limits: PoolLimits) -> bool {
        if self.displaced >= (limits.strangers_max / DISPLACED_PART).max(1) {
            return false;
        }
        let own = self.clients.get(&counted_as(who.client)).map_or(0, |client| client.places.len());
        let most = self.clients.values().max_by_key(|client| client.places.len());
        // A trusted client takes precedence.
        let giving = most.filter(|most| who.trusted || most.places.len() > own + 1);
        let place = match giving {
            Some(client) => client.idle().next().cloned(),
            None if limits.role == Role::Users && own == 0 => {
                self.clients.values().flat_map(OfClient::idle).min_by_key(|place| place.arrival).cloned()
            }
            None => None,
        };
        let Some(place) = place else { return false };
        for client in self.clients.values_mut() {
            client.places.retain(|known| !Arc::ptr_eq(known, &place));
        }
        place.is_displaced.store(true, Ordering::Relaxed);
        place.notify.notify_one();
        self.displaced += 1;
        true
    }

    fn add(&mut self, who: Counted, place: &Arc<SessionSlot>) {
        self.total += 1;
        let client = self.clients.entry(counted_as(who.client)).or_default();
        client.sessions += 1;
        if !who.trusted {
            self.strangers += 1;
            if place.is_displaced.load(Ordering::Relaxed) {
                self.displaced += 1;
            } else if !who.is_proxy {
                client.places.push_back(place.clone());
            }
        }
    }

    fn remove(&mut self, who: Counted, place: &Arc<SessionSlot>) {
        self.total -= 1;
        if !who.trusted {
            self.strangers -= 1;
            self.displaced -= usize::from(place.is_displaced.load(Ordering::Relaxed));
        }
        let address = counted_as(who.client);
        if let Some(client) = self.clients.get_mut(&address) {
            client.sessions -= 1;
            client.places.retain(|known| !Arc::ptr_eq(known, place));
            if client.sessions == 0 {
                self.clients.remove(&address);
            }
        }
    }
}

/// An admitted connection; it no longer counts once dropped.
pub struct Admitted {
    sessions: Arc<Mutex<OpenSessions>>,
    who: Counted,
    role: Role,
    place: Arc<SessionSlot>,
}

/// Result of admitting a connection, possibly in place of another.
pub struct AdmissionResult {
    pub admitted: Admitted,
    pub has_displaced: bool,
}

impl Admitted {
    /// Counts a connection, if the limits permit one more.
    ///
    /// # Errors
    /// The limit that is reached, and the reply to the client.
    pub fn admit(
        sessions: Arc<Mutex<OpenSessions>>,
        who: Counted,
        limits: PoolLimits,
    ) -> Result<AdmissionResult, (Limit, Reply)> {
        let mut has_displaced = false;
        let place;
        {
            let mut open = sessions.lock();
            let pool = open.pool(limits.role);
            if pool.is_full(who.trusted, limits) && !who.is_proxy {
                has_displaced = pool.displace_for(who, limits);
            }
            if let Some(refusal) = pool.refusal(who, limits) {
                return Err(refusal);
            }
            pool.arrivals += 1;
            place = Arc::new(SessionSlot { arrival: pool.arrivals, ..SessionSlot::default() });
            pool.add(who, &place);
        }
        Ok(AdmissionResult { admitted: Admitted { sessions, who, role: limits.role, place }, has_displaced })
    }

    /// Counts the connection for another client from now on, if the limits permit that.
    ///
    /// # Errors
    /// As for [`Admitted::admit`]; the connection is then counted as before.
    pub fn change(&mut self, who: Counted, limits: PoolLimits) -> Result<(), (Limit, Reply)> {
        let mut open = self.sessions.lock();
        let pool = open.pool(self.role);
        pool.remove(self.who, &self.place);
        let refusal = pool.refusal(who, limits);
        if refusal.is_none() {
            self.who = who;
        }
        pool.add(self.who, &self.place);
        refusal.map_or(Ok(()), Err)
    }

    /// Whether untrusted clients have more than half of their share of the pool.
    pub fn is_crowded(&self, limits: PoolLimits) -> bool {
        self.sessions.lock().pool(self.role).strangers > limits.strangers_max / 2
    }

    /// Notes whether the session has a transaction.
    pub fn set_busy(&self, is_busy: bool) {
        self.place.is_busy.store(is_busy, Ordering::Relaxed);
    }

    /// Returns once another client has taken its place.
    pub async fn lost(&self) {
        self.place.lost().await;
    }

    /// Returns its place, so that a task beside the session's own can wait for its loss.
    pub fn place(&self) -> Arc<SessionSlot> {
        self.place.clone()
    }
}

impl SessionSlot {
    /// Returns once another client has taken the place.
    pub async fn lost(&self) {
        while !self.is_displaced.load(Ordering::Relaxed) {
            self.notify.notified().await;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.sessions.lock().pool(self.role).remove(self.who, &self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PoolLimits =
        PoolLimits { role: Role::Relay, sessions_max: 40, strangers_max: 30, per_client_max: 20 };
    const USERS: PoolLimits = PoolLimits { role: Role::Users, ..LIMITS };

    struct House(Arc<Mutex<OpenSessions>>);

    impl House {
        fn new() -> House {
            House(Arc::default())
        }

        fn enter(&self, client: u8, trusted: bool, limits: PoolLimits) -> Result<AdmissionResult, (Limit, Reply)> {
            Admitted::admit(self.0.clone(), counted(client, trusted), limits)
        }

        /// Opens `count` sessions, for each of the clients in turn.
        fn fill(&self, count: usize, clients: u8, limits: PoolLimits) -> Vec<Admitted> {
            let one = |n: usize| self.enter((n % usize::from(clients)) as u8, false, limits).ok();
            (0..count).filter_map(one).map(|admission| admission.admitted).collect()
        }
    }

    fn counted(client: u8, trusted: bool) -> Counted {
        Counted { client: [192, 0, 2, client].into(), trusted, is_proxy: false }
    }

    fn is_lost(admitted: &Admitted) -> bool {
        admitted.place.is_displaced.load(Ordering::Relaxed)
    }

    #[test]
    fn one_pool_does_not_fill_the_other() {
        let house = House::new();
        let full = house.fill(100, 3, LIMITS);
        assert_eq!(full.len(), 30);
        let mut user = house.enter(9, false, USERS).unwrap().admitted;
        assert!(user.change(counted(9, true), USERS).is_ok());
        let others = house.fill(100, 3, USERS);
        assert_eq!((others.len(), house.0.lock().of(Role::Relay)), (30, 30));
        // The last quarter is reserved for trusted clients.
        assert!(house.enter(7, true, LIMITS).is_ok());
    }

    #[test]
    fn who_has_most_gives_way_to_who_has_fewer() {
        for limits in [LIMITS, USERS] {
            let house = House::new();
            let mut full = house.fill(30, 2, limits);
            full.iter().take(4).for_each(|admitted| admitted.set_busy(true));
            for client in 10..13 {
                let admission = house.enter(client, false, limits).unwrap();
                assert!(admission.has_displaced);
                full.push(admission.admitted);
            }
            let lost: Vec<usize> = (0..30).filter(|at| is_lost(&full[*at])).collect();
            // Each time the oldest session without a transaction.
            assert!(lost.len() == 3 && lost.iter().all(|at| (4..8).contains(at)), "{lost:?}");
            // Only a few at a time, while those sessions are still open.
            assert!(house.enter(13, false, limits).is_err());
            lost.iter().rev().for_each(|at| drop(full.remove(*at)));
            let last = house.enter(13, false, limits).unwrap();
            assert!(last.has_displaced);
            // A client with as many sessions takes no place.
            assert!(house.enter(0, false, limits).is_err());
        }
    }

    #[test]
    fn a_users_first_session_gets_the_place_of_the_oldest_without_a_login() {
        let house = House::new();
        let mut full = house.fill(30, 30, USERS);
        full[0].set_busy(true);
        // A session that is counted again keeps its age.
        assert!(full[1].change(counted(1, false), USERS).is_ok());
        let mut late = Vec::new();
        for client in 100..103 {
            late.push(house.enter(client, false, USERS).unwrap().admitted);
        }
        assert!((0..30).all(|at| is_lost(&full[at]) == (1..4).contains(&at)));
        // Only a few at a time.
        assert!(house.enter(103, false, USERS).is_err());
        full.drain(1..4);
        assert!(house.enter(100, false, USERS).is_err(), "it has a session");
        let last = house.enter(103, false, USERS).unwrap();
        assert!(last.has_displaced && is_lost(&full[1]) && !late.iter().any(is_lost));
        // The relay pool only gives places to clients with fewer sessions.
        let _others = house.fill(30, 30, LIMITS);
        assert!(house.enter(100, false, LIMITS).is_err());
    }

    #[test]
    fn nobody_with_a_transaction_loses_its_place() {
        let house = House::new();
        let full = house.fill(30, 1, PoolLimits { per_client_max: 100, ..LIMITS });
        for admitted in &full {
            admitted.set_busy(true);
        }
        assert_eq!(house.enter(9, false, LIMITS).err().map(|(limit, _)| limit), Some(Limit::Connections));
    }

    #[test]
    fn counts_are_those_of_what_is_open() {
        let house = House::new();
        let mut full = house.fill(30, 3, USERS);
        let late = house.enter(9, false, USERS).unwrap().admitted;
        let lost = full.iter().position(is_lost).unwrap();
        // A session that has just logged in is kept.
        assert!(full[lost].change(counted(0, true), USERS).is_ok());
        {
            let mut open = house.0.lock();
            let pool = open.pool(Role::Users);
            assert_eq!((pool.total, pool.strangers, pool.displaced), (31, 30, 0));
        }
        drop((full, late));
        let mut open = house.0.lock();
        let pool = open.pool(Role::Users);
        assert_eq!((pool.total, pool.strangers, pool.displaced, pool.clients.len()), (0, 0, 0, 0));
    }
}
