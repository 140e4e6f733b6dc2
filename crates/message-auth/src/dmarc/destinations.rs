//! Where aggregate reports about a domain go (RFC 9990 sections 2.6 and 3).
//!
//! States: the domain's record is looked up -> each address at another organization must be permitted by a record of
//! that organization, which may name another address at the same host instead.
//!
//! Promise: an address at another organization gets a report only if it agrees. Failure: a DNS failure ends the search,
//! so that it is repeated.

use std::collections::BTreeSet;

use super::record::{DmarcRecord, REPORT_ADDRESSES_MAX, ReportAddress};
use super::{WalkStop, walk};
use crate::dns::{DnsQuestion, Inquiry, KnownAnswers, RecordAnswer, RecordKind};

/// Next step of a search.
#[derive(Debug, PartialEq, Eq)]
pub enum DestinationStep {
    /// These questions must be answered.
    Ask(Vec<DnsQuestion>),
    Found(DestinationChoice),
    /// A question failed.
    Failed,
}

/// The addresses that get the report, and those that do not permit it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DestinationChoice {
    pub permitted: Vec<ReportAddress>,
    pub refused: Vec<String>,
}

/// Searches the addresses for reports about one policy domain.
#[derive(Debug)]
pub struct DestinationSearch {
    domain: String,
    answers: KnownAnswers,
}

impl DestinationSearch {
    pub fn new(domain: &str) -> DestinationSearch {
        DestinationSearch { domain: domain.to_owned(), answers: KnownAnswers::default() }
    }

    pub fn answer(&mut self, question: DnsQuestion, answer: RecordAnswer) {
        self.answers.add(question, answer);
    }

    pub fn step(&self) -> DestinationStep {
        let inquiry = Inquiry::new(&self.answers);
        match self.search(&inquiry) {
            Ok(choice) => DestinationStep::Found(choice),
            Err(WalkStop::Failed) => DestinationStep::Failed,
            Err(WalkStop::Pending) => DestinationStep::Ask(inquiry.into_questions()),
        }
    }

    fn search(&self, inquiry: &Inquiry<'_>) -> Result<DestinationChoice, WalkStop> {
        let records = texts(inquiry, &format!("_dmarc.{}", self.domain))?;
        let mut policies = records.iter().filter_map(|text| DmarcRecord::parse(text));
        let requested = match (policies.next(), policies.next()) {
            (Some(record), None) => record.report_addresses(),
            // Several records are none.
            _ => Vec::new(),
        };
        let (mut choice, mut known) = (DestinationChoice::default(), BTreeSet::new());
        let searched: Vec<_> = requested.into_iter().map(|one| (self.permitted(inquiry, &one), one)).collect();
        for (found, requested) in searched {
            match found? {
                None => choice.refused.push(requested.address),
                Some(found) => {
                    choice.permitted.extend(found.into_iter().filter(|one| known.insert(one.address.clone())));
                }
            }
        }
        // Each address may have named several instead.
        choice.permitted.truncate(REPORT_ADDRESSES_MAX);
        Ok(choice)
    }

    /// The address itself or those that its host names instead; `None`: the host does not permit reports.
    fn permitted(
        &self,
        inquiry: &Inquiry<'_>,
        requested: &ReportAddress,
    ) -> Result<Option<Vec<ReportAddress>>, WalkStop> {
        let Some(host) = host_of(requested) else { return Ok(None) };
        if self.is_own(inquiry, &host)? {
            return Ok(Some(vec![requested.clone()]));
        }
        let texts = texts(inquiry, &format!("{}._report._dmarc.{host}", self.domain))?;
        let Some(record) = texts.iter().find_map(|text| DmarcRecord::parse(text)) else { return Ok(None) };
        let named = record.report_addresses();
        if named.is_empty() {
            return Ok(Some(vec![requested.clone()]));
        }
        // Another host would have to permit it in its turn.
        let is_elsewhere = named.iter().any(|one| host_of(one).as_ref() != Some(&host));
        Ok(Some(named).filter(|_| !is_elsewhere))
    }

    /// Whether a host belongs to the organization of the domain.
    fn is_own(&self, inquiry: &Inquiry<'_>, host: &str) -> Result<bool, WalkStop> {
        if host == self.domain {
            return Ok(true);
        }
        let (of_host, of_domain) = (walk(inquiry, host), walk(inquiry, &self.domain));
        let (of_host, of_domain) = (of_host?, of_domain?);
        Ok(of_host.organization() == of_domain.organization())
    }
}

fn host_of(address: &ReportAddress) -> Option<String> {
    address.address.rsplit_once('@').map(|(_, host)| host.to_ascii_lowercase())
}

fn texts<'a>(inquiry: &Inquiry<'a>, name: &str) -> Result<&'a [Box<[u8]>], WalkStop> {
    let answer = inquiry.ask(name, RecordKind::Txt)?;
    if *answer == RecordAnswer::Failed { Err(WalkStop::Failed) } else { Ok(answer.texts()) }
}
