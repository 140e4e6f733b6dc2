//! Queue-only scopes in a world, and runs of its queue.

use stentor_mail::Class;
use stentor_queue::event::Event;
use stentor_queue::ids::{AddressId, MessageNo};
use stentor_queue::message::Message;
use stentor_queue::queue_only::Scope;
use stentor_sched::Work;

use super::verbs::Verb;
use super::{Ev, HOUR, World, rules};

impl World {
    pub fn begin_queue_only(&mut self) {
        let class = if self.rng.bool() { Class::Bulk } else { Class::Ordinary };
        let scope = match self.rng.u32(0..7) {
            0 => Scope::All,
            1 => Scope::Class(class),
            2 => Scope::List(rules::list(&mut self.rng).unwrap_or_else(|| rules::SHORT.to_owned())),
            3 => Scope::Domain(self.hosts.domain(&mut self.rng)),
            4 => Scope::Sender("@s1.example".to_owned()),
            5 => Scope::Sender("list@s2.example".to_owned()),
            _ => Scope::Source(rules::source(0).name),
        };
        let name = scope.to_string();
        self.set_queue_only(&name, true);
        let after = self.rng.u64(1..3 * HOUR);
        self.at(after, Ev::Verb(Verb::QueueOnlyEnds(name)));
    }

    pub fn set_queue_only(&mut self, name: &str, is_on: bool) {
        self.store.apply(Event::Suspend { suspended: is_on, what: name, until: 0, reason: "" });
        self.sched.set_suspended(name, is_on, 0, "");
    }

    pub fn run_queue(&mut self) {
        self.sched.run_queue(self.now);
        let all = self.store.messages();
        let all = all.flat_map(|(_, message)| message.pending().iter().map(|id| ((message.id().0, AddressId(id)), 0)));
        self.in_run = all.collect();
    }

    /// Checks that queue-only mail was in the queue when it was run and is tried only once while the run lasts, unless
    /// others of its message wait at its site, or it was lost on the way.
    pub fn check_queue_only(&mut self, work: &Work) {
        let seed = self.seed;
        for id in &work.ids {
            if !self.is_queue_only(work.no, *id) {
                continue;
            }
            let message = self.store.message(work.no).expect("a live message");
            let (key, is_alone) = ((message.id().0, *id), message.total() == 1);
            let since = self.sched.queue_run_since();
            assert!(since.is_some(), "seed {seed}: queue-only, and handed out without a run: {key:?}");
            let times = self.in_run.get_mut(&key).unwrap_or_else(|| panic!("seed {seed}: came after the run: {key:?}"));
            *times += 1;
            assert!(*times == 1 || !is_alone, "seed {seed}: tried {times} times by one run: {key:?}");
        }
    }

    fn is_queue_only(&self, no: MessageNo, id: AddressId) -> bool {
        let message: &Message = self.store.message(no).expect("a live message");
        let domain = self.store.book.domain_name(self.store.book.domain(id));
        self.store.queue_only().filter_map(|(name, ..)| Scope::of_name(name)).any(|scope| match scope {
            Scope::All => true,
            Scope::Class(class) => class == message.class(),
            Scope::List(list) => message.list() == Some(&*list),
            Scope::Domain(wanted) => wanted == domain,
            Scope::Source(_) => match self.cfg.sources.len() {
                0 => false,
                1 => true,
                _ => message.list() == Some(rules::SUSPENDS),
            },
            scope => scope.has_message(&message.envelope()),
        })
    }
}
