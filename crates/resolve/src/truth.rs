//! Marks answers whose truth is not known: a name server that may validate has not answered, and another has, which cannot tell.
//!
//! Neither authentic nor insecure: RFC 4035 4.3 calls it indeterminate. Such an answer leads to a host, and is no reason to take DANE for
//! absent (RFC 7672 2.1). Hickory and its cache stand between who asks and who answers, and keep only records of an answer that has none, so
//! the mark is a record behind the authorities. A server that sends one itself brings nothing but mistrust on its answer.

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::NULL;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// For private use (RFC 6895 3.1).
const MARK: RecordType = RecordType::Unknown(65_399);

/// Marks an answer, with the reason. It is not kept in the cache.
pub fn mark(reply: &mut Message, why: &str) {
    keep_out_of_cache(reply);
    reply.metadata.authentic_data = false;
    let data = RData::Unknown { code: MARK, rdata: NULL::with(why.as_bytes().to_vec()) };
    reply.authorities.push(Record::from_rdata(Name::root(), 0, data));
}

pub fn keep_out_of_cache(reply: &mut Message) {
    let Message { answers, authorities, additionals, .. } = reply;
    for record in answers.iter_mut().chain(authorities).chain(additionals) {
        record.ttl = 0;
    }
}

/// Why the truth of an answer is not known, also of one without records; `None`: it is known, or there is no answer.
pub fn why_unchecked(result: &Result<Lookup, NetError>) -> Option<String> {
    let authorities = match result {
        Ok(lookup) => lookup.message().authorities.as_slice(),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => none.authorities.as_deref()?,
        Err(_) => return None,
    };
    authorities.iter().find_map(|record| match &record.data {
        RData::Unknown { code, rdata } if *code == MARK => {
            Some(format!("no validated answer: {}", String::from_utf8_lossy(&rdata.anything).escape_debug()))
        }
        _ => None,
    })
}
