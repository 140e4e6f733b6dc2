//! Answers the DNS questions of message authentication (SPF, DKIM, DMARC, ARC, reverse DNS).
//!
//! Promise: questions are asked in parallel, and all end at the caller's time limit; those without an answer by then
//! are [`RecordAnswer::Failed`]. Failures do not count as failures of our name servers: senders choose the names.

use hickory_resolver::proto::rr::{Name, RData, RecordType};
use stentor_message_auth::{DnsQuestion, RecordAnswer, RecordKind};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::{Resolver, answers, truth};

/// A question and its answer.
#[derive(Debug)]
pub struct AnsweredQuestion {
    pub question: DnsQuestion,
    pub answer: RecordAnswer,
}

impl Resolver {
    /// Asks all questions.
    pub async fn answer_all(&self, questions: Vec<DnsQuestion>, until: Instant) -> Vec<AnsweredQuestion> {
        let mut tasks = JoinSet::new();
        for (at, question) in questions.iter().cloned().enumerate() {
            let resolver = self.clone();
            tasks.spawn(async move { (at, resolver.answer_one(&question).await) });
        }
        let failed = |question| AnsweredQuestion { question, answer: RecordAnswer::Failed };
        let mut answered: Vec<_> = questions.into_iter().map(failed).collect();
        while let Ok(Some(joined)) = timeout_at(until, tasks.join_next()).await {
            if let Ok((at, answer)) = joined {
                answered[at].answer = answer;
            }
        }
        answered
    }

    async fn answer_one(&self, question: &DnsQuestion) -> RecordAnswer {
        // Names of SPF macros may have other octets than host names.
        let Ok(mut name) = Name::from_labels(question.name.split('.').map(str::as_bytes)) else {
            return RecordAnswer::Empty;
        };
        name.set_fqdn(true);
        let kind = match question.kind {
            RecordKind::A => RecordType::A,
            RecordKind::Aaaa => RecordType::AAAA,
            RecordKind::Mx => RecordType::MX,
            RecordKind::Ptr => RecordType::PTR,
            RecordKind::Txt => RecordType::TXT,
        };
        let result = self.uncounted(&name, kind).await;
        if truth::why_awaited(&result).is_some() {
            return RecordAnswer::Failed;
        }
        match answers::data(&name, kind, result, |data| Some(data.clone())) {
            Ok(Some((records, ..))) => converted(question.kind, records),
            Ok(None) => RecordAnswer::Empty,
            Err(_) => RecordAnswer::Failed,
        }
    }
}

fn converted(kind: RecordKind, records: Vec<RData>) -> RecordAnswer {
    match kind {
        RecordKind::A | RecordKind::Aaaa => {
            let address = |record| match record {
                RData::A(a) => Some(a.0.into()),
                RData::AAAA(aaaa) => Some(aaaa.0.into()),
                _ => None,
            };
            non_empty(records.into_iter().filter_map(address).collect(), RecordAnswer::Addresses)
        }
        RecordKind::Mx => {
            let mut hosts: Vec<_> = records
                .iter()
                .filter_map(|record| if let RData::MX(mx) = record { Some(mx) } else { None })
                .map(|mx| (mx.preference, host(&mx.exchange)))
                .collect();
            hosts.sort_unstable();
            non_empty(hosts.into_iter().map(|(_, host)| host).collect(), RecordAnswer::Hosts)
        }
        RecordKind::Ptr => {
            let name = |record: &RData| if let RData::PTR(name) = record { Some(host(name)) } else { None };
            non_empty(records.iter().filter_map(name).collect(), RecordAnswer::Hosts)
        }
        RecordKind::Txt => {
            let text =
                |record: &RData| if let RData::TXT(text) = record { Some(text.txt_data.concat().into()) } else { None };
            non_empty(records.iter().filter_map(text).collect(), RecordAnswer::Texts)
        }
    }
}

/// The name as in a question: in lower case, with octets that host names have not (SPF permits them). A label with a
/// dot stays escaped, or it would be another name.
fn host(name: &Name) -> Box<str> {
    let label = |octets| std::str::from_utf8(octets).ok().filter(|label: &&str| !label.contains('.'));
    let labels: Option<Vec<&str>> = name.iter().map(label).collect();
    labels.map_or_else(|| answers::text(name), |labels| labels.join(".").to_ascii_lowercase()).into()
}

/// Records of other types than asked for are none.
fn non_empty<T>(all: Vec<T>, answer: impl FnOnce(Vec<T>) -> RecordAnswer) -> RecordAnswer {
    if all.is_empty() { RecordAnswer::Empty } else { answer(all) }
}
