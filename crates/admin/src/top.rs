//! The recipients with most messages waiting: for all mail from the store's counts, for one list by a walk through its
//! messages. Slices of well under a millisecond under the hub's lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use hashbrown::HashMap;
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::AddressId;
use stentor_queue::store::CHUNK_ADDRESSES;
use stentor_sched::QueuePart;

use crate::find;
use crate::row_query::RowQuery;

/// Chunks of [`CHUNK_ADDRESSES`] counts examined per hold of the lock.
const CHUNKS_STEP: usize = 32;
/// As [`CHUNKS_STEP`], if each address is looked up.
const CHUNKS_LOOKED_STEP: usize = 4;
/// Messages and recipients examined per hold of the lock.
const STEPS: usize = 8_192;

/// The best so far; the least of them is on top.
struct TopRecipients {
    rows_max: usize,
    chosen: BinaryHeap<Reverse<(u32, Reverse<u32>)>>,
    /// Number of all offered.
    seen: u64,
}

impl TopRecipients {
    /// The count to exceed.
    fn least(&self) -> u32 {
        if self.chosen.len() < self.rows_max { 0 } else { self.chosen.peek().map_or(0, |least| least.0.0) }
    }

    fn see(&mut self, count: u32, id: u32) {
        self.seen += 1;
        self.choose(count, id);
    }

    /// Offers a chunk of counts, the first of which is that of `first`. Nearly all chunks have none above the least:
    /// those cost two passes without a branch.
    fn see_chunk(&mut self, counts: &[u32], first: u32) {
        self.seen += counts.iter().map(|count| u64::from(*count > 0)).sum::<u64>();
        if counts.iter().fold(0, |most, count| most.max(*count)) <= self.least() {
            return;
        }
        for (id, count) in (first..).zip(counts) {
            self.choose(*count, id);
        }
    }

    fn choose(&mut self, count: u32, id: u32) {
        if count <= self.least() {
            return;
        }
        self.chosen.push(Reverse((count, Reverse(id))));
        if self.chosen.len() > self.rows_max {
            self.chosen.pop();
        }
    }
}

/// The addresses with most messages, and their counts; of equal ones, those known for longest. Also the number of
/// addresses with any.
pub(crate) async fn top_addresses(core: &Arc<Core>, query: &RowQuery) -> (Vec<(u32, u32)>, u64) {
    let mut best = TopRecipients { rows_max: query.rows_max, chosen: BinaryHeap::new(), seen: 0 };
    if query.rows_max == 0 {
        return (Vec::new(), 0);
    }
    if query.part.list.is_some() {
        let counts = counts_of(core, &query.part).await;
        let mut all: Vec<_> = counts.into_iter().map(|(id, count)| (Reverse(count), id)).collect();
        all.sort_unstable();
        for part in all.chunks(STEPS) {
            core.with(|hub, _| {
                let there = part.iter().filter(|(_, id)| is_at(hub, *id, &query.part));
                there.for_each(|(Reverse(count), id)| best.see(*count, *id));
            });
            tokio::task::yield_now().await;
        }
    } else {
        of_all(core, &query.part, &mut best).await;
    }
    let mut top: Vec<_> = best.chosen.into_iter().map(|Reverse((count, Reverse(id)))| (count, id)).collect();
    top.sort_unstable_by_key(|(count, id)| (Reverse(*count), *id));
    (top, best.seen)
}

async fn of_all(core: &Arc<Core>, part: &QueuePart, best: &mut TopRecipients) {
    let step = if part.at.is_some() { CHUNKS_LOOKED_STEP } else { CHUNKS_STEP };
    let (mut chunk, mut is_last) = (0, false);
    while !is_last {
        is_last = core.with(|hub, _| {
            for _ in 0..step {
                let Some(counts) = hub.store.waiting_chunk(chunk) else { return true };
                let first = (chunk * CHUNK_ADDRESSES) as u32;
                if part.at.is_none() {
                    best.see_chunk(counts, first);
                } else {
                    let waiting = (first..).zip(counts).filter(|(id, count)| **count > 0 && is_at(hub, *id, part));
                    waiting.for_each(|(id, count)| best.see(*count, id));
                }
                chunk += 1;
            }
            false
        });
        tokio::task::yield_now().await;
    }
}

fn is_at(hub: &Hub, id: u32, part: &QueuePart) -> bool {
    let Some(at) = part.at else { return true };
    hub.store.book.try_domain(AddressId(id)).is_some_and(|domain| find::is_at(hub, domain, at))
}

/// Messages by recipient.
async fn counts_of(core: &Arc<Core>, part: &QueuePart) -> HashMap<u32, u32> {
    let mut counts = HashMap::new();
    let (mut next, until) = core.with(|hub, _| hub.store.number_bounds());
    let mut within = None;
    while next != until {
        core.with(|hub, _| {
            let mut steps = STEPS;
            for (no, message) in hub.store.messages_between(next, until) {
                if no.0 != next {
                    // The message at the walk's position has ended.
                    (next, within) = (no.0, None);
                }
                if part.has_message(message) {
                    let pending = message.pending();
                    for id in within.map_or_else(|| pending.iter(), |after| pending.iter_from(after)) {
                        if steps == 0 {
                            return;
                        }
                        steps -= 1;
                        *counts.entry(id).or_insert(0) += 1;
                        within = Some(id);
                    }
                }
                (next, within) = (no.0.wrapping_add(1), None);
                if steps == 0 {
                    return;
                }
                steps -= 1;
            }
            next = until;
        });
        tokio::task::yield_now().await;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_and_single_counts_give_the_same_best() {
        // Numerical Recipes' generator; its upper bits are the better ones.
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % 12
        };
        for rows_max in [1, 3, 20] {
            let new = || TopRecipients { rows_max, chosen: BinaryHeap::new(), seen: 0 };
            let (mut by_chunk, mut by_count) = (new(), new());
            let counts: Vec<u32> = (0..1_000).map(|_| next()).collect();
            for (n, chunk) in counts.chunks(64).enumerate() {
                by_chunk.see_chunk(chunk, n as u32 * 64);
            }
            for (id, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                by_count.see(*count, id as u32);
            }
            assert_eq!(by_chunk.seen, by_count.seen);
            assert_eq!(by_chunk.chosen.into_sorted_vec(), by_count.chosen.into_sorted_vec());
        }
    }
}
