//! Rates a name server's reply: final, worse than another server's possible reply, or a refusal of EDNS.
//!
//! It is pure. A reply is final if it answers the question, or states authoritatively that there is nothing (RFC 2308
//! 2). NXDOMAIN and NODATA are answers, so no other server is queried. All other replies say more about the server
//! than about the name.

use hickory_resolver::proto::op::{Message, Query, ResponseCode};
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::proto::rr::rdata::opt::{EdnsCode, EdnsOption};

use super::aliases::CnameChain;

/// Option code of extended DNS errors (RFC 8914 4).
const EDE: u16 = 15;
/// Codes by which a validating server reports bogus data: from indeterminate to NSEC missing.
const EDE_BOGUS: std::ops::RangeInclusive<u16> = 5..=12;

/// Rating of a reply; see the module documentation. Of replies that are not final, the greatest is the best last
/// resort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplyRating {
    /// An error to a query with EDNS, from a server that may not support it: without EDNS it may answer (RFC 6891 7,
    /// 6.1.3).
    NoEdns,
    /// REFUSED, NOTIMP and other codes: this server does not answer such queries.
    Refusal,
    /// SERVFAIL, and unknown codes.
    Failure,
    /// NOERROR or NXDOMAIN with neither records nor the SOA that makes it authoritative: a referral, a lame
    /// delegation, or a forwarder that omits the SOA.
    Unproven,
    Final,
}

/// Rates a reply to a query with or without EDNS.
pub fn rating(reply: &Message, question: &Query, has_edns: bool) -> ReplyRating {
    match reply.metadata.response_code {
        // BADVERS and BADSIG are the same number; our queries are never signed.
        ResponseCode::FormErr | ResponseCode::NotImp | ResponseCode::BADVERS | ResponseCode::BADSIG if has_edns => {
            ReplyRating::NoEdns
        }
        ResponseCode::NoError if answers(reply, question) => ReplyRating::Final,
        ResponseCode::NoError if reply.answers.is_empty() && has_soa(reply) => ReplyRating::Final,
        ResponseCode::NoError => ReplyRating::Unproven,
        // A server that neither recurses nor is authoritative knows neither names nor their absence.
        ResponseCode::NXDomain => {
            let is_known = has_soa(reply) || reply.metadata.authoritative || reply.metadata.recursion_available;
            if is_known { ReplyRating::Final } else { ReplyRating::Unproven }
        }
        // A server that supports EDNS uses it in every reply, even in errors.
        _ if has_edns && reply.edns.is_none() => ReplyRating::NoEdns,
        ResponseCode::ServFail | ResponseCode::Unknown(_) => ReplyRating::Failure,
        _ => ReplyRating::Refusal,
    }
}

/// Whether an error to a query with EDNS shows that the server does not support it; other errors may concern only the
/// name.
pub fn is_refusal_of_edns(reply: &Message) -> bool {
    match reply.metadata.response_code {
        ResponseCode::FormErr | ResponseCode::NotImp => reply.edns.is_none(),
        // The code's high bits are in the OPT record, so there is always one.
        ResponseCode::BADVERS | ResponseCode::BADSIG => true,
        _ => false,
    }
}

/// Whether a reply is about this question. Errors may lack the question, since some servers omit it (RFC 1035 4.1.1
/// lets a server copy what it could read).
pub fn is_about(reply: &Message, question: &Query) -> bool {
    match reply.queries.as_slice() {
        [one] => {
            one.name() == question.name()
                && one.query_type() == question.query_type()
                && one.query_class() == question.query_class()
        }
        [] => !matches!(reply.metadata.response_code, ResponseCode::NoError | ResponseCode::NXDomain),
        _ => false,
    }
}

/// Whether a validating server reports bogus data: no other server's answer may replace it.
pub fn is_bogus(reply: &Message) -> bool {
    let options = reply.edns.iter().flat_map(|edns| edns.options().get_all(EdnsCode::Unknown(EDE)));
    options.into_iter().any(|option| {
        let EdnsOption::Unknown(_, data) = option else { return false };
        data.first_chunk().is_some_and(|code| EDE_BOGUS.contains(&u16::from_be_bytes(*code)))
    })
}

/// Whether a server that recurses says that there is nothing and leaves the SOA out, as forwarders do. Another's answer
/// may be better, but that it is not authentic is said.
pub fn is_empty_word(reply: &Message) -> bool {
    let is_empty = reply.answers.is_empty() && reply.authorities.is_empty();
    reply.metadata.response_code == ResponseCode::NoError && is_empty && reply.metadata.recursion_available
}

fn has_soa(reply: &Message) -> bool {
    reply.authorities.iter().any(|record| record.record_type() == RecordType::SOA)
}

/// Whether the reply has the requested records, or an alias on the way to them.
fn answers(reply: &Message, question: &Query) -> bool {
    let owners = CnameChain::of(question.name(), &reply.answers);
    // An alias whose target is elsewhere is followed by another query.
    owners.has_aliases()
        || reply
            .answers
            .iter()
            .any(|record| record.record_type() == question.query_type() && owners.contains(&record.name))
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{Edns, OpCode};
    use hickory_resolver::proto::rr::rdata::{A, CNAME, NS, SOA};
    use hickory_resolver::proto::rr::{Name, RData, Record};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn reply(code: ResponseCode, change: impl FnOnce(&mut Message)) -> Message {
        let mut reply = Message::response(7, OpCode::Query);
        reply.metadata.response_code = code;
        reply.add_query(Query::query(name("d.x."), RecordType::A));
        change(&mut reply);
        reply
    }

    fn record(owner: &str, data: RData) -> Record {
        Record::from_rdata(name(owner), 60, data)
    }

    fn address(owner: &str) -> Record {
        record(owner, RData::A(A::new(192, 0, 2, 1)))
    }

    fn alias(owner: &str, target: &str) -> Record {
        record(owner, RData::CNAME(CNAME(name(target))))
    }

    fn soa() -> Record {
        record("x.", RData::SOA(SOA::new(name("ns.x."), name("h.x."), 1, 60, 60, 60, 60)))
    }

    fn ns() -> Record {
        record(".", RData::NS(NS(name("a.root."))))
    }

    #[test]
    fn a_reply_is_final_or_another_server_is_asked() {
        use ResponseCode::{BADVERS, FormErr, NXDomain, NoError, NotImp, Refused, ServFail};
        let question = Query::query(name("D.X."), RecordType::A);
        let none = |_: &mut Message| {};
        let with_answer = |record: Record| {
            reply(NoError, |r| {
                r.add_answer(record);
            })
        };
        let with_authority = |code, record: Record| {
            reply(code, |r| {
                r.add_authority(record);
            })
        };
        let alias_and_end = reply(NoError, |r| {
            r.add_answer(alias("d.x.", "e.y.")).add_answer(address("e.y."));
        });
        let by_forwarder = reply(NXDomain, |r| r.metadata.recursion_available = true);
        let by_owner = reply(NXDomain, |r| r.metadata.authoritative = true);
        for (what, reply, has_edns, wanted) in [
            ("an address", with_answer(address("d.x.")), true, ReplyRating::Final),
            ("an alias alone", with_answer(alias("d.x.", "e.y.")), true, ReplyRating::Final),
            ("an alias with its end", alias_and_end, true, ReplyRating::Final),
            ("no data", with_authority(NoError, soa()), true, ReplyRating::Final),
            ("no data, unproven", reply(NoError, none), true, ReplyRating::Unproven),
            ("a referral upward", with_authority(NoError, ns()), true, ReplyRating::Unproven),
            ("another name's address", with_answer(address("e.x.")), true, ReplyRating::Unproven),
            ("no such name", with_authority(NXDomain, soa()), true, ReplyRating::Final),
            ("the same of a forwarder", by_forwarder, true, ReplyRating::Final),
            ("the same of its owner", by_owner, true, ReplyRating::Final),
            ("the same of nobody", reply(NXDomain, none), true, ReplyRating::Unproven),
            ("SERVFAIL", reply(ServFail, |r| r.edns = Some(Edns::new())), true, ReplyRating::Failure),
            ("SERVFAIL without EDNS", reply(ServFail, none), false, ReplyRating::Failure),
            ("SERVFAIL of who may not know EDNS", reply(ServFail, none), true, ReplyRating::NoEdns),
            ("11", reply(ResponseCode::Unknown(11), none), false, ReplyRating::Failure),
            ("REFUSED", reply(Refused, |r| r.edns = Some(Edns::new())), true, ReplyRating::Refusal),
            ("REFUSED without EDNS", reply(Refused, none), false, ReplyRating::Refusal),
            ("REFUSED of who may not know EDNS", reply(Refused, none), true, ReplyRating::NoEdns),
            ("FORMERR", reply(FormErr, none), true, ReplyRating::NoEdns),
            ("NOTIMP", reply(NotImp, none), true, ReplyRating::NoEdns),
            ("BADVERS", reply(BADVERS, none), true, ReplyRating::NoEdns),
            ("FORMERR without EDNS", reply(FormErr, none), false, ReplyRating::Refusal),
            ("NOTIMP without EDNS", reply(NotImp, none), false, ReplyRating::Refusal),
        ] {
            assert_eq!(rating(&reply, &question, has_edns), wanted, "{what}");
        }
        assert!(
            ReplyRating::Final > ReplyRating::Unproven
                && ReplyRating::Unproven > ReplyRating::Failure
                && ReplyRating::Failure > ReplyRating::Refusal
        );
    }

    #[test]
    fn aliases_in_a_loop_end() {
        let question = Query::query(name("d.x."), RecordType::A);
        let looped = reply(ResponseCode::NoError, |r| {
            r.add_answer(alias("d.x.", "e.x.")).add_answer(alias("e.x.", "d.x."));
        });
        // Rating ends, and ignores other names.
        let _ = rating(&looped, &question, true);
    }

    #[test]
    fn replies_to_other_questions_are_none() {
        let question = Query::query(name("d.x."), RecordType::A);
        let of = |kind| Query::query(name("d.x."), kind);
        assert!(is_about(&reply(ResponseCode::NoError, |_| {}), &question));
        assert!(!is_about(&reply(ResponseCode::NoError, |r| r.queries = vec![of(RecordType::MX)]), &question));
        assert!(!is_about(&reply(ResponseCode::NoError, |r| r.queries.clear()), &question));
        assert!(!is_about(&reply(ResponseCode::NoError, |r| r.queries.push(of(RecordType::A))), &question));
        assert!(is_about(&reply(ResponseCode::FormErr, |r| r.queries.clear()), &question));
    }

    #[test]
    fn bogus_data_are_named_by_extended_errors() {
        let with = |code: u16| {
            reply(ResponseCode::ServFail, |r| {
                let mut edns = Edns::new();
                let data = [&code.to_be_bytes()[..], b"text"].concat();
                edns.options_mut().insert(EdnsOption::Unknown(EDE, data));
                r.edns = Some(edns);
            })
        };
        assert!(is_bogus(&with(6)) && is_bogus(&with(7)) && is_bogus(&with(12)));
        assert!(!is_bogus(&with(22)) && !is_bogus(&reply(ResponseCode::ServFail, |_| {})));
    }
}
