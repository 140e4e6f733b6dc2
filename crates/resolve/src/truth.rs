//! Marks answers whose truth is not known: a name server that may validate has not answered, and another has, which
//! cannot tell.
//!
//! Neither authentic nor insecure: RFC 4035 4.3 calls it indeterminate. Records of such an answer lead to a host; they
//! are no reason to take DANE for absent (RFC 7672 2.1). If it has no records, nothing follows from that while a server
//! that could tell is awaited: neither that the domain is its own host, nor that it or its hosts do not exist.
//!
//! Hickory and its cache are between the question and its answer. Of an answer without records they keep the
//! authorities alone, so the mark is a record behind those. They also follow aliases with questions of their own, and
//! read records in sections where none belong; each would lose the mark. So a marked answer has nothing but the records
//! of its end, under the name in the question. A server that sends a mark itself only causes mistrust of its answer.

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::rdata::NULL;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

use super::aliases::CnameChain;

/// For private use (RFC 6895 3.1).
const MARK: RecordType = RecordType::Unknown(65_399);

/// First octet of the mark's data: whether a server that could tell is awaited.
const AWAITED: u8 = b'+';
const NOT_AWAITED: u8 = b'-';

/// Marks an answer, with the reason. It is not kept in the cache. `is_awaited`: a server that could tell has been
/// answering lately. False: the answer cannot be marked, since it ends with an alias.
#[must_use]
pub fn mark(reply: &mut Message, question: &Query, why: &str, is_awaited: bool) -> bool {
    let has_end = reduce(reply, question);
    keep_out_of_cache(reply);
    reply.metadata.authentic_data = false;
    let first = if is_awaited { AWAITED } else { NOT_AWAITED };
    let data = RData::Unknown { code: MARK, rdata: NULL::with([&[first], why.as_bytes()].concat()) };
    reply.authorities.push(Record::from_rdata(Name::root(), 0, data));
    has_end
}

/// Removes all but the records at the end of the aliases, which get the name in the question, and SOA and NS records.
/// False: there is only an alias.
fn reduce(reply: &mut Message, question: &Query) -> bool {
    let (kind, name) = (question.query_type(), question.name());
    let answers = std::mem::take(&mut reply.answers);
    // An alias is the end of a question for it.
    let aliases: &[Record] = if kind == RecordType::CNAME { &[] } else { &answers };
    let owners = CnameChain::of(name, aliases);
    let ends = answers.iter().filter(|record| record.record_type() == kind && record.name == *owners.last());
    reply.answers = ends.map(|record| Record::from_rdata(name.clone(), 0, record.data.clone())).collect();
    reply.additionals.clear();
    reply.authorities.retain(|record| matches!(record.record_type(), RecordType::SOA | RecordType::NS));
    !(reply.answers.is_empty() && owners.has_aliases())
}

pub fn keep_out_of_cache(reply: &mut Message) {
    let Message { answers, authorities, additionals, .. } = reply;
    for record in answers.iter_mut().chain(authorities).chain(additionals) {
        record.ttl = 0;
    }
}

/// Why the truth of an answer is not known, also of one without records; `None`: it is known, or there is no answer.
pub fn why_unchecked(result: &Result<Lookup, NetError>) -> Option<String> {
    why_marked(result).map(|(_, why)| why)
}

/// Why nothing follows from an answer without records: a server that could tell its truth is awaited.
pub fn why_awaited(result: &Result<Lookup, NetError>) -> Option<String> {
    why_marked(result).filter(|(is_awaited, _)| *is_awaited && result.is_err()).map(|(_, why)| why)
}

/// Whether a server is awaited, and the reason.
fn why_marked(result: &Result<Lookup, NetError>) -> Option<(bool, String)> {
    let authorities = match result {
        Ok(lookup) => lookup.message().authorities.as_slice(),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => none.authorities.as_deref()?,
        Err(_) => return None,
    };
    authorities.iter().find_map(|record| match &record.data {
        RData::Unknown { code, rdata } if *code == MARK => {
            let (first, why) = rdata.anything.split_first().unwrap_or((&AWAITED, &[]));
            let why = format!("no validated answer: {}", String::from_utf8_lossy(why).escape_debug());
            Some((*first != NOT_AWAITED, why))
        }
        _ => None,
    })
}
