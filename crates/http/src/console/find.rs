//! Finds messages in the queue that match filters, one page at a time.
//!
//! Promise: uses the walk of the operator's actions, in slices. A search with few results stops after [`LOOK_MS_MAX`]
//! with a place to continue, so that no page waits for a search of ten million recipients. A place is a message's
//! number and the last recipient examined in it; both stay valid while the process runs, and a place that no longer
//! exists means the next one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stentor_admin::find::{find_at, pending_at};
use stentor_admin::verbs::Walk;
use stentor_admin::views::recipient;
use stentor_control::problem::Problem;
use stentor_control::{RecipientView, Selection};
use stentor_core::Core;
use stentor_queue::ids::{AddressId, Ms};
use stentor_queue::message::Message;

/// Maximum duration of a search per page.
const LOOK_MS_MAX: u64 = 120;

/// Where a page begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageStart {
    pub no: u32,
    pub within: Option<u32>,
}

impl fmt::Display for PageStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.within {
            Some(within) => write!(f, "{}-{within}", self.no),
            None => write!(f, "{}", self.no),
        }
    }
}

impl FromStr for PageStart {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<PageStart, Self::Err> {
        match text.split_once('-') {
            Some((no, within)) => Ok(PageStart { no: no.parse()?, within: Some(within.parse()?) }),
            None => Ok(PageStart { no: text.parse()?, within: None }),
        }
    }
}

/// Filter of the selected messages by state.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum State {
    #[default]
    Any,
    /// An operator holds it.
    Held,
    /// No recipient has had a final outcome yet.
    Untouched,
    /// Some recipients have had a final outcome.
    Partly,
}

impl State {
    fn takes(self, message: &Message) -> bool {
        match self {
            State::Any => true,
            State::Held => message.is_held(),
            State::Untouched => message.pending().len() as u64 == message.total(),
            State::Partly => (message.pending().len() as u64) < message.total(),
        }
    }
}

/// A message in the queue.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Row {
    pub id: String,
    pub sender: String,
    pub list: Option<String>,
    pub size: u64,
    pub accepted: Ms,
    pub pending: u64,
    /// Its recipients at the selected site; `None` if no site is selected, or there are too many to count.
    pub here: Option<u64>,
    pub total: u64,
    pub failed: u64,
    pub held: bool,
    /// The first waiting recipient, within the selection.
    pub first: Option<RecipientView>,
}

#[derive(Default, Debug)]
pub struct SearchResult {
    pub now: Ms,
    pub rows: Vec<Row>,
    /// Where to continue; `None` at the end.
    pub next: Option<PageStart>,
    /// Whether the search stopped for time rather than for enough rows.
    pub is_partial: bool,
}

/// The next messages from `from`, oldest first.
pub async fn messages(
    core: &Arc<Core>,
    selection: &Selection,
    takes: &(dyn Fn(&Message) -> bool + Sync),
    from: Option<PageStart>,
    rows_max: usize,
) -> Result<SearchResult, Problem> {
    let begin = Instant::now();
    let (mut walk, now) = (Walk::begin(core, selection, true)?, core.clock.now());
    let site = selection.site.as_deref();
    let at = site.and_then(|name| core.with(|hub, _| find_at(hub, name))).map(|(at, _)| at);
    if let Some(place) = from {
        walk.go_on_at(place.no, place.within);
    }
    let mut found = SearchResult { now, ..SearchResult::default() };
    loop {
        let is_last = core.with(|hub, now| {
            // One at a time, so that the place is always after the last row.
            let (chosen, is_last) = walk.step(hub, 1);
            if let Some(one) = chosen.first()
                && let Some(message) = hub.store.message(one.no).filter(|message| takes(message))
            {
                let first = one.ids.iter().next().map(|id| recipient(hub, one.no, AddressId(id), now));
                let here = at.and_then(|at| pending_at(hub, message, at));
                found.rows.push(row(message, first, here));
            }
            is_last
        });
        let (no, within) = walk.place();
        found.next = (!is_last).then_some(PageStart { no, within });
        if is_last || found.rows.len() >= rows_max {
            return Ok(found);
        }
        if begin.elapsed() > Duration::from_millis(LOOK_MS_MAX) {
            found.is_partial = true;
            return Ok(found);
        }
        tokio::task::yield_now().await;
    }
}

/// A filter by state only.
pub fn of_state(state: State) -> impl Fn(&Message) -> bool + Sync {
    move |message| state.takes(message)
}

fn row(message: &Message, first: Option<RecipientView>, here: Option<u64>) -> Row {
    let (envelope, tally) = (message.envelope(), message.tally());
    Row {
        id: message.id().to_string(),
        sender: envelope.sender.to_owned(),
        list: envelope.list.map(str::to_owned),
        size: envelope.size,
        accepted: message.accepted(),
        pending: message.pending().len() as u64,
        here,
        total: message.total(),
        failed: tally.bounced + tally.expired,
        held: message.is_held(),
        first,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_their_text() {
        for place in [PageStart { no: 7, within: None }, PageStart { no: u32::MAX, within: Some(0) }] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        assert!(["", "x", "1-", "-1", "4294967296"].iter().all(|text| text.parse::<PageStart>().is_err()));
    }
}
