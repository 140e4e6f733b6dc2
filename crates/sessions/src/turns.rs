//! Turns on the threads of untrusted clients: decides which of their sessions is polled next.
//!
//! Promise: as many sessions are polled at once as there are threads. The next one belongs to the client that has used
//! the least time, so a client with little to do waits for one turn of another, however many sessions others have and
//! whatever these cost. A turn is one poll; long work in a session is split up (`transaction/body.rs`). A client that
//! was idle has no claim to the time that it did not use.
//!
//! States of a session: idle -> waiting for a turn (it was woken and all turns are taken) -> polled -> idle. Dropping
//! it in any state returns what it holds.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stentor_policy::counted_as;

/// The turns of a group of threads.
#[derive(Clone)]
pub(super) struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    /// Unused turns.
    free: usize,
    clients: HashMap<IpAddr, Client>,
    /// Clients with waiting sessions, by the time that they have used.
    waiting: BTreeSet<(Duration, IpAddr)>,
    /// Used time of the last client to get a turn: new clients begin there.
    begin: Duration,
}

#[derive(Default)]
struct Client {
    sessions: usize,
    /// Time that its turns have used.
    used: Duration,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    ticket: Arc<AtomicBool>,
    waker: Waker,
}

/// A session that runs in turns.
pub(super) struct InTurns<S> {
    session: Pin<Box<S>>,
    turns: Turns,
    client: IpAddr,
    /// Present while it waits; true once it has its turn.
    ticket: Option<Arc<AtomicBool>>,
}

impl Turns {
    pub fn new(threads: usize) -> Turns {
        let (clients, waiting) = (HashMap::new(), BTreeSet::new());
        Turns(Arc::new(Mutex::new(Queue { free: threads, clients, waiting, begin: Duration::ZERO })))
    }

    /// Runs a client's session in turns with all others.
    pub fn run<S: Future>(&self, client: IpAddr, session: S) -> InTurns<S> {
        // An IPv6 /64 is one client.
        let client = counted_as(client);
        self.0.lock().clients.entry(client).or_default().sessions += 1;
        InTurns { session: Box::pin(session), turns: self.clone(), client, ticket: None }
    }
}

impl Queue {
    /// Requests a turn for a woken session. `None`: it has one at once.
    fn ask(&mut self, address: IpAddr, waker: &Waker) -> Option<Arc<AtomicBool>> {
        let begin = self.begin;
        let client = self.clients.entry(address).or_default();
        if client.waiting.is_empty() {
            client.used = client.used.max(begin);
        }
        if self.free > 0 {
            self.free -= 1;
            return None;
        }
        let ticket = Arc::new(AtomicBool::new(false));
        client.waiting.push_back(Waiting { ticket: ticket.clone(), waker: waker.clone() });
        self.waiting.insert((client.used, address));
        Some(ticket)
    }

    /// Ends a turn of this duration, and passes it on.
    fn end(&mut self, address: IpAddr, took: Duration) {
        if let Some(client) = self.clients.get_mut(&address) {
            let is_waiting = self.waiting.remove(&(client.used, address));
            client.used += took;
            if is_waiting {
                self.waiting.insert((client.used, address));
            }
        }
        self.pass_on();
    }

    fn pass_on(&mut self) {
        while let Some((used, address)) = self.waiting.pop_first() {
            let Some(client) = self.clients.get_mut(&address) else { continue };
            let Some(next) = client.waiting.pop_front() else { continue };
            if !client.waiting.is_empty() {
                self.waiting.insert((used, address));
            }
            self.begin = self.begin.max(used);
            next.ticket.store(true, Ordering::Release);
            next.waker.wake();
            return;
        }
        self.free += 1;
    }

    /// Withdraws a session that no longer waits.
    fn forget(&mut self, address: IpAddr, ticket: &Arc<AtomicBool>) {
        let Some(client) = self.clients.get_mut(&address) else { return };
        client.waiting.retain(|waiting| !Arc::ptr_eq(&waiting.ticket, ticket));
        if client.waiting.is_empty() {
            self.waiting.remove(&(client.used, address));
        }
    }

    fn leave(&mut self, address: IpAddr) {
        if let Some(client) = self.clients.get_mut(&address) {
            client.sessions -= 1;
            if client.sessions == 0 {
                self.clients.remove(&address);
            }
        }
    }
}

/// A running turn; ended on drop.
struct Turn<'t> {
    turns: &'t Turns,
    client: IpAddr,
    begun: Instant,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.0.lock().end(self.client, self.begun.elapsed());
    }
}

impl<S: Future> Future for InTurns<S> {
    type Output = S::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<S::Output> {
        let this = &mut *self;
        match &this.ticket {
            None => {
                this.ticket = this.turns.0.lock().ask(this.client, cx.waker());
                if this.ticket.is_some() {
                    return Poll::Pending;
                }
            }
            Some(ticket) => {
                let mut queue = this.turns.0.lock();
                if !ticket.load(Ordering::Acquire) {
                    let of_client = queue.clients.get_mut(&this.client);
                    let mut waiting = of_client.into_iter().flat_map(|client| &mut client.waiting);
                    if let Some(own) = waiting.find(|waiting| Arc::ptr_eq(&waiting.ticket, ticket)) {
                        own.waker.clone_from(cx.waker());
                    }
                    return Poll::Pending;
                }
            }
        }
        this.ticket = None;
        let _turn = Turn { turns: &this.turns, client: this.client, begun: Instant::now() };
        this.session.as_mut().poll(cx)
    }
}

impl<S> Drop for InTurns<S> {
    fn drop(&mut self) {
        let mut queue = self.turns.0.lock();
        if let Some(ticket) = self.ticket.take() {
            if ticket.load(Ordering::Acquire) {
                queue.pass_on();
            } else {
                queue.forget(self.client, &ticket);
            }
        }
        queue.leave(self.client);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    const ANN: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const BOB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));
    const MS: Duration = Duration::from_millis(1);

    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> (Arc<Counted>, Waker) {
        let counted = Arc::new(Counted(AtomicUsize::new(0)));
        (counted.clone(), counted.into())
    }

    fn queue(threads: usize) -> Queue {
        let (clients, waiting) = (HashMap::new(), BTreeSet::new());
        Queue { free: threads, clients, waiting, begin: Duration::ZERO }
    }

    /// Serves `turns` turns to these sessions (client, number of sessions, cost of a turn), all of which always wait,
    /// and counts the turns by client.
    fn served(sessions: &[(IpAddr, usize, u32)], turns: usize) -> HashMap<IpAddr, usize> {
        let (_, waker) = waker();
        let mut queue = queue(1);
        assert!(queue.ask(ANN, &waker).is_none());
        let mut waiting: Vec<(IpAddr, Arc<AtomicBool>)> = Vec::new();
        for (client, count, _) in sessions {
            for _ in 0..*count {
                waiting.push((*client, queue.ask(*client, &waker).unwrap()));
            }
        }
        let (mut holder, mut served) = (ANN, HashMap::new());
        for _ in 0..turns {
            let cost = sessions.iter().find(|(client, ..)| *client == holder).map_or(1, |(.., cost)| *cost);
            queue.end(holder, MS * cost);
            let at = waiting.iter().position(|(_, ticket)| ticket.load(Ordering::Relaxed)).unwrap();
            holder = waiting.swap_remove(at).0;
            *served.entry(holder).or_default() += 1;
            waiting.push((holder, queue.ask(holder, &waker).unwrap()));
        }
        served
    }

    #[test]
    fn clients_have_equal_time_whatever_their_sessions_are() {
        let served_equally = served(&[(ANN, 100, 1), (BOB, 1, 1)], 100);
        assert!(served_equally[&BOB].abs_diff(50) <= 1, "{served_equally:?}");
        // A client whose turns take ten times as long gets a tenth of them.
        let by_cost = served(&[(ANN, 100, 10), (BOB, 1, 1)], 110);
        assert!(by_cost[&ANN].abs_diff(10) <= 1, "{by_cost:?}");
        let many: Vec<_> = (10..60).map(|n| (IpAddr::from([198, 51, 100, n]), 20, 5)).chain([(BOB, 1, 5)]).collect();
        assert!(served(&many, 51 * 4)[&BOB] >= 4);
    }

    #[test]
    fn who_comes_late_waits_for_one_turn() {
        let (_, waker) = waker();
        let mut queue = queue(1);
        assert!(queue.ask(ANN, &waker).is_none());
        let mut tickets: Vec<_> = (0..50).map(|_| queue.ask(ANN, &waker).unwrap()).collect();
        for _ in 0..20 {
            queue.end(ANN, MS * 10);
            tickets.retain(|ticket| !ticket.load(Ordering::Relaxed));
        }
        let bob = queue.ask(BOB, &waker).unwrap();
        queue.end(ANN, MS * 10);
        assert!(bob.load(Ordering::Relaxed));
        // He has saved up nothing from his idle time.
        queue.end(BOB, Duration::ZERO);
        let again = queue.ask(BOB, &waker).unwrap();
        queue.end(ANN, MS);
        assert!(again.load(Ordering::Relaxed));
        queue.end(BOB, MS * 500);
        let third = queue.ask(BOB, &waker).unwrap();
        for _ in 0..20 {
            queue.end(ANN, MS * 10);
            assert!(!third.load(Ordering::Relaxed));
        }
    }

    #[test]
    fn what_is_dropped_gives_back_its_turn() {
        let turns = Turns::new(1);
        let (woken, waker) = waker();
        let mut cx = Context::from_waker(&waker);
        let polls = AtomicUsize::new(0);
        let endless = || {
            std::future::poll_fn(|_| {
                polls.fetch_add(1, Ordering::Relaxed);
                Poll::<()>::Pending
            })
        };
        // All turns are taken.
        assert!(turns.0.lock().ask(BOB, &waker).is_none());
        let mut waiting = [(); 3].map(|()| Box::pin(turns.run(ANN, endless())));
        for session in &mut waiting {
            assert!(session.as_mut().poll(&mut cx).is_pending());
        }
        let [first, second, mut third] = waiting;
        assert_eq!((polls.load(Ordering::Relaxed), woken.0.load(Ordering::Relaxed)), (0, 0));
        drop(first);
        turns.0.lock().end(BOB, MS);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "the second has its turn");
        drop(second);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2, "the third has it now");
        assert!(third.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        assert!(third.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polls.load(Ordering::Relaxed), 2, "a free turn is had at once");
        drop(third);
        let queue = turns.0.lock();
        assert_eq!((queue.free, queue.clients.contains_key(&ANN), queue.waiting.len()), (1, false, 0));
    }
}
