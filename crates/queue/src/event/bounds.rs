//! Upper bounds of record sizes, known before encoding, so that a batch can be planned.
//!
//! Promise: a bound is never less than the octets that the encoder of the same name appends, nor than a checkpoint's
//! later slice of the message, when some recipients have their fate. Each bound has a property test.

use super::RcptParams;
use crate::codec::VARINT_BYTES_MAX;
use crate::idset::{IdSet, part_bytes_max};

/// Bytes of a 32-bit id as a varint, or of the difference of two.
const ID_BYTES_MAX: usize = 5;
/// Kind, flags, and fields before a part.
const FIXED: usize = 16;

/// The parts of an acceptance that determine its size.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptParts<'a> {
    pub sender: &'a str,
    pub list: Option<&'a str>,
    pub prefix: &'a [u8],
    pub envid: Option<&'a str>,
    pub message_id: &'a str,
    pub origin: &'a str,
    pub given_sender: &'a str,
    pub held_by: &'a str,
}

/// Bound for an `Accept` record, and for the message's slice in a checkpoint with the tally of its fates. `ids_bytes`
/// is for the set of recipients ([`IdSet::part_bytes_max`]).
pub fn accept_bytes_max<'p>(
    parts: &AcceptParts<'_>,
    ids_bytes: usize,
    params: impl Iterator<Item = &'p RcptParams>,
) -> usize {
    /// Bytes for the numbers of the head, the envelope and the tally.
    const NUMBERS: usize = 28;
    let (list, envid) = (parts.list.unwrap_or(""), parts.envid.unwrap_or(""));
    let envelope = [parts.sender, list, envid, parts.message_id, parts.origin, parts.given_sender, parts.held_by];
    let texts: usize = envelope.iter().map(|text| text.len()).sum();
    let params: usize = params.map(param_bytes_max).sum();
    FIXED + NUMBERS * VARINT_BYTES_MAX + texts + parts.prefix.len() + ids_bytes + params
}

fn param_bytes_max(params: &RcptParams) -> usize {
    ID_BYTES_MAX + 2 + VARINT_BYTES_MAX + params.orcpt.as_ref().map_or(0, String::len)
}

/// Bound for the set of recipients of `addresses` addresses, wherever they are in the book.
pub fn ids_bytes_max(addresses: usize) -> usize {
    part_bytes_max(addresses, addresses)
}

/// Bound for an `Intern` record of texts with these lengths.
pub fn intern_bytes_max(texts: impl Iterator<Item = usize>) -> usize {
    FIXED + texts.map(|len| ID_BYTES_MAX + VARINT_BYTES_MAX + len).sum::<usize>()
}

/// Bound for an `Outcome` or `QuarantineEnded` record of these recipients or some of them.
pub fn outcome_bytes_max(ids: &IdSet, by: Option<&str>) -> usize {
    FIXED + 3 * VARINT_BYTES_MAX + ids.part_bytes_max() + by.map_or(0, str::len)
}

/// Bound for a `QuarantineReleased` record of a message whose slice takes at most `slice_bytes`.
pub fn release_bytes_max(slice_bytes: usize, by: &str) -> usize {
    FIXED + 2 * VARINT_BYTES_MAX + slice_bytes + by.len()
}

/// Bound for a `ListVersion` record.
pub fn list_bytes_max(name: &str, stamp: &str, ids: &IdSet) -> usize {
    FIXED + 3 * VARINT_BYTES_MAX + name.len() + stamp.len() + ids.encoded_bytes_max()
}

/// Bound for a `Verb` record.
pub fn verb_bytes_max(who: &str, verb: &str, detail: &str) -> usize {
    FIXED + 4 * VARINT_BYTES_MAX + who.len() + verb.len() + detail.len()
}

/// Bound for a `Held` or `Released` record.
pub fn hold_bytes_max(messages: usize) -> usize {
    FIXED + VARINT_BYTES_MAX * (1 + messages)
}

/// Bound for a `Suspended`, `Resumed` or `ListRemoved` record.
pub fn suspend_bytes_max(what: &str, reason: &str) -> usize {
    FIXED + 3 * VARINT_BYTES_MAX + what.len() + reason.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_mail::Class;
    use stentor_mail::dsn::Ret;

    use super::*;
    use crate::event::{
        Accept, Fate, MessageIdAt, encode_accept, encode_hold, encode_intern, encode_list, encode_outcome,
        encode_suspend, encode_verb,
    };
    use crate::ids::{AddressId, ContentId, MessageId};

    /// Sets of few ids, scattered ids, runs, and half of a run.
    fn sets() -> impl Strategy<Value = IdSet> {
        let scattered = prop::collection::vec(any::<u32>(), 0..400).prop_map(|ids| ids.into_iter().collect());
        let near = prop::collection::vec(0u32..500_000, 0..3_000).prop_map(|ids| ids.into_iter().collect());
        let run = (any::<u32>(), 0u32..200_000, 1u32..4).prop_map(|(start, len, step)| {
            let mut ids: IdSet = (start..start.saturating_add(len)).step_by(step as usize).collect();
            ids.optimize();
            ids
        });
        prop_oneof![scattered, near, run]
    }

    fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut buffer = Vec::new();
        encode(&mut buffer);
        buffer.len()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_set_takes_more(ids in sets(), step in 1usize..4, first in 0usize..4) {
            prop_assert!(bytes(|buffer| ids.encode(buffer)) <= ids.encoded_bytes_max());
            let mut part: IdSet = ids.iter().skip(first).step_by(step).collect();
            prop_assert!(bytes(|buffer| part.encode(buffer)) <= ids.part_bytes_max());
            part.optimize();
            prop_assert!(bytes(|buffer| part.encode(buffer)) <= ids.part_bytes_max());
            prop_assert!(ids.part_bytes_max() <= ids_bytes_max(ids.len()));
        }

        #[test]
        fn no_record_takes_more(ids in sets(), texts in prop::collection::vec(".{0,40}", 8), numbers: [u64; 4],
                                params in prop::collection::vec((any::<u32>(), any::<Option<u8>>(), prop::option::of(".{0,60}")), 0..8),
                                addresses in prop::collection::vec((any::<u32>(), ".{0,90}"), 0..30), at: bool) {
            let params: Vec<_> =
                params.into_iter().map(|(id, notify, orcpt)| (AddressId(id), RcptParams { notify, orcpt })).collect();
            let [sender, list, envid, message_id, origin, prefix, given, held] =
                [0, 1, 2, 3, 4, 5, 6, 7].map(|at| texts[at].clone());
            let parts = AcceptParts {
                sender: &sender, list: Some(&list), prefix: prefix.as_bytes(), envid: Some(&envid), message_id: &message_id, origin: &origin,
                given_sender: &given, held_by: &held,
            };
            let most = accept_bytes_max(&parts, ids.part_bytes_max(), params.iter().map(|(_, params)| params));
            let accept = Accept {
                id: MessageId(numbers[0]), content: ContentId(numbers[1]), size: numbers[2], accepted: numbers[3],
                sender: sender.clone(), class: Class::Bulk, list: Some(list.clone()), recipients: ids.clone(), prefix: prefix.clone().into_bytes(),
                eight_bit: true, smtputf8: true, ret: Some(Ret::Full), envid: Some(envid.clone()), params: params.clone(), origin: origin.clone(),
                message_id: message_id.clone(), message_id_at: at.then_some(MessageIdAt { offset: u32::MAX, len: u32::MAX }), is_report: true,
                given_sender: Some(given.clone()), held_by: Some(held.clone()), require_tls: true, merge_bytes: u64::MAX, is_transactional: true,
                is_archive: true,
            };
            prop_assert!(bytes(|buffer| encode_accept(buffer, &accept)) <= most);
            let by = Some(sender.as_str());
            prop_assert!(bytes(|b| encode_outcome(b, accept.id, Fate::Removed, &ids, by, numbers[3])) <= outcome_bytes_max(&ids, by));
            prop_assert!(bytes(|b| encode_list(b, &list, numbers[2], &origin, &ids)) <= list_bytes_max(&list, &origin, &ids));
            prop_assert!(bytes(|b| encode_verb(b, numbers[3], &sender, &list, &envid)) <= verb_bytes_max(&sender, &list, &envid));
            prop_assert!(bytes(|b| encode_suspend(b, true, &list, u64::MAX, &envid)) <= suspend_bytes_max(&list, &envid));
            prop_assert!(bytes(|b| encode_hold(b, true, numbers.into_iter().map(MessageId))) <= hold_bytes_max(numbers.len()));
            let most = intern_bytes_max(addresses.iter().map(|(_, text)| text.len()));
            prop_assert!(bytes(|b| encode_intern(b, addresses.iter().map(|(id, text)| (AddressId(*id), text.as_str())))) <= most);
        }
    }
}
