//! The origin of events: the measured process, the measuring one, and others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::operation::Traced;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ThreadRole {
    /// The generator's threads, or the traced program's.
    Generator,
    /// Threads that an operation waited for: journal, workers.
    Helper,
    /// Interrupts of idle CPUs.
    Idle,
    Tracer,
    Other,
}

impl ThreadRole {
    pub const EVERY: [ThreadRole; 5] =
        [ThreadRole::Generator, ThreadRole::Helper, ThreadRole::Idle, ThreadRole::Tracer, ThreadRole::Other];

    pub fn name(self) -> &'static str {
        match self {
            ThreadRole::Generator => "generator",
            ThreadRole::Helper => "threads that worked for it",
            ThreadRole::Idle => "idle CPUs",
            ThreadRole::Tracer => "tracer",
            ThreadRole::Other => "others",
        }
    }

    /// Neither what is measured nor for it.
    pub fn interferes(self) -> bool {
        matches!(self, ThreadRole::Tracer | ThreadRole::Other)
    }
}

/// Threads of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    pub role: ThreadRole,
    /// `kworker/u8:1` and its like are one: `kworker`.
    pub name: String,
    pub events: u64,
    /// Nanoseconds on a CPU, as far as the trace tells.
    pub ran: u64,
}

/// `helpers`: the threads whose timelines were walked. `ran`: nanoseconds by thread.
pub fn count(traced: &Traced, helpers: &BTreeSet<i32>, ran: &HashMap<i32, u64>) -> Vec<Person> {
    let mut events: HashMap<i32, u64> = HashMap::new();
    for event in &traced.trace.events {
        *events.entry(event.tid).or_default() += 1;
    }
    let role = |tid: i32| match tid {
        0 => ThreadRole::Idle,
        tid if traced.generator.contains(&tid) => ThreadRole::Generator,
        tid if traced.tracer.contains(&tid) => ThreadRole::Tracer,
        tid if helpers.contains(&tid) => ThreadRole::Helper,
        _ => ThreadRole::Other,
    };
    let mut people: BTreeMap<(ThreadRole, String), (u64, u64)> = BTreeMap::new();
    for (tid, events) in events {
        let name = match tid {
            0 => "idle".to_owned(),
            tid => traced.trace.threads.get(&tid).map_or_else(|| format!("thread {tid}"), |name| family(name)),
        };
        let entry = people.entry((role(tid), name)).or_default();
        entry.0 += events;
        entry.1 += ran.get(&tid).copied().unwrap_or(0);
    }
    let mut people: Vec<Person> =
        people.into_iter().map(|((role, name), (events, ran))| Person { role, name, events, ran }).collect();
    people.sort_by_key(|person| (person.role, std::cmp::Reverse(person.events)));
    people
}

/// The name of a kernel thread without its numbers.
fn family(name: &str) -> String {
    match name.split_once('/') {
        Some((family, _)) if ["kworker", "ksoftirqd", "migration", "cpuhp"].contains(&family) => family.to_owned(),
        _ => name.to_owned(),
    }
}
