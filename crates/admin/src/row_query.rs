//! The query of a [`View`] in terms of the queue: the part, the order of rows, and how many.

use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

use stentor_control::problem::Problem;
use stentor_control::view::Subject;
use stentor_control::{Sort, View};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::Ms;
use stentor_queue::message::Message;
use stentor_sched::{CauseCounts, QueuePart, WaitingPlace};

use crate::causes::DatedCensus;
use crate::find::find_at;
use crate::{lists, suggestions};

/// The number of rows, their order, and the part of the queue.
#[derive(Clone)]
pub struct RowQuery {
    pub part: QueuePart,
    /// The part in words, such as `of list news`; empty for the whole queue.
    pub words: String,
    pub sort: Sort,
    pub rows_max: usize,
}

impl RowQuery {
    /// The rows with most pending recipients of the whole queue.
    pub fn all(rows_max: usize) -> RowQuery {
        RowQuery { part: QueuePart::default(), words: String::new(), sort: Sort::Waiting, rows_max }
    }

    /// Converts a command's view. Do not call it with the hub's lock held.
    ///
    /// # Errors
    /// There is no such site.
    pub fn of(core: &Arc<Core>, view: &View, command: Subject) -> Result<RowQuery, Problem> {
        let at = match &view.site {
            None => None,
            Some(name) => {
                let found = core.with(|hub, _| find_at(hub, name));
                Some(found.ok_or_else(|| suggestions::unknown_site(core, name))?)
            }
        };
        let of = view.list.as_ref().map(|list| format!("of list {list}"));
        let to = at.as_ref().map(|(_, name)| format!("at {name}"));
        Ok(RowQuery {
            words: of.into_iter().chain(to).collect::<Vec<_>>().join(" "),
            part: QueuePart { list: view.list.as_deref().map(Into::into), at: at.map(|(at, _)| at) },
            sort: view.sort.or(command.default_sort(view.by)).unwrap_or(Sort::Waiting),
            rows_max: view.rows_max.unwrap_or(command.default_rows()) as usize,
        })
    }

    /// The refusal, if nothing was counted because there is no such list.
    pub fn unknown_list(&self, core: &Core, counted: Option<&DatedCensus>) -> Option<Problem> {
        let is_empty = counted.is_none_or(|counted| counted.census.total.recipients() == 0);
        lists::unknown(core, self.part.list.as_deref()).filter(|_| is_empty)
    }
}

/// The sort key of rows, least first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Number(Reverse<u64>),
    At(Ms),
    Name(String),
}

/// A site, or a domain without one, whose row is being built.
pub struct RankedPlace {
    pub key: Key,
    /// Waiting recipients.
    pub waiting: u64,
    pub at: WaitingPlace,
}

impl RankedPlace {
    /// By key; of equal keys, in the order of places.
    pub fn order(&self, other: &RankedPlace) -> Ordering {
        (&self.key, self.at).cmp(&(&other.key, other.at))
    }
}

/// The key of a site or list, from its counts.
pub fn key(hub: &Hub, sort: Sort, waiting: u64, counts: Option<&CauseCounts>, name: &str) -> Key {
    match sort {
        Sort::Messages => Key::Number(Reverse(counts.map_or(0, |counts| counts.messages))),
        Sort::Age => {
            let oldest = counts.and_then(|counts| counts.oldest).and_then(|no| hub.store.message(no));
            Key::At(oldest.map_or(Ms::MAX, Message::accepted))
        }
        // Held mail comes last; other mail without a clock may go now.
        Sort::NextTry if counts.is_some_and(CauseCounts::are_kept) => Key::At(Ms::MAX),
        Sort::NextTry => Key::At(counts.and_then(CauseCounts::next_try).unwrap_or(0)),
        Sort::Name => Key::Name(name.to_owned()),
        // The last two apply to hosts.
        Sort::Waiting | Sort::Failures | Sort::Latency => Key::Number(Reverse(waiting)),
    }
}
