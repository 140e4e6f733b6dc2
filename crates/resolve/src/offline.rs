//! Processes a name server's reply without network and cache, to measure its cost.

use hickory_resolver::lookup::Lookup;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};

use super::answers::mx_answer;
use super::rating::rating;
use super::select::MxAnswer;
use super::transport::parse;

/// Reads a reply to an MX query as a lookup does; returns the number of records for the name.
pub fn mx_records(octets: &[u8], name: &str) -> usize {
    let Ok(name) = Name::from_ascii(name) else { return 0 };
    let question = Query::query(name.clone(), RecordType::MX);
    let Ok(Some(mut reply)) = parse(octets, &question) else { return 0 };
    if rating(&reply, &question, true) < super::rating::ReplyRating::Unproven {
        return 0;
    }
    let answers = std::mem::take(&mut reply.answers);
    match mx_answer(&name, Ok(Lookup::new_with_max_ttl(question, answers))).0 {
        MxAnswer::Records { records, .. } => records.len(),
        _ => 0,
    }
}
