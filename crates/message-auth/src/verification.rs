//! All methods for one message: asks questions, takes answers, ends with a [`Report`].
//!
//! States: each method is open until its answers are known, and is then never evaluated again. DMARC follows SPF and
//! DKIM. Failure: after [`Verification::close`] what is unknown counts as a DNS failure, and the next step is the last.

use std::net::IpAddr;

use stentor_dkim::FieldIndex;

use crate::arc::{ArcResult, arc};
use crate::dkim::{DkimResult, dkim};
use crate::dmarc::{AuthenticatedDomains, DmarcResult, dmarc, prefetch};
use crate::dns::{DnsQuestion, Inquiry, KnownAnswers, RecordAnswer, is_domain};
use crate::method::MethodResult;
use crate::report::{Report, SpfIdentity, SpfResult};
use crate::reverse::iprev;
use crate::scan::ScannedMessage;
use crate::spf::{SpfRequest, check_host};

/// Who sends a message.
#[derive(Debug, Clone)]
pub struct SessionIdentity {
    /// Canonical: no IPv4-mapped address.
    pub client: IpAddr,
    /// Name in HELO or EHLO.
    pub helo: String,
    /// Sender of the envelope; empty: the null sender.
    pub sender: String,
}

impl SessionIdentity {
    /// The HELO name as a domain; `None` for other names, such as address literals.
    fn helo_domain(&self) -> Option<String> {
        let helo = self.helo.strip_suffix('.').unwrap_or(&self.helo).to_ascii_lowercase();
        is_domain(&helo).then_some(helo)
    }

    /// Local part and domain of the sender; `None`: the null sender.
    fn mail_from(&self) -> Option<(&str, &str)> {
        self.sender.rsplit_once('@')
    }
}

/// Next step of a verification.
#[derive(Debug)]
pub enum Step {
    /// These questions must be answered.
    Ask(Vec<DnsQuestion>),
    Done,
}

/// Verifies one message.
pub struct Verification {
    identity: SessionIdentity,
    message: ScannedMessage,
    now_s: u64,
    is_dmarc_on: bool,
    answers: KnownAnswers,
    iprev: Option<MethodResult>,
    helo: Option<MethodResult>,
    mail_from: Option<MethodResult>,
    dkim: Option<Vec<DkimResult>>,
    arc: Option<ArcResult>,
    dmarc: Option<Vec<DmarcResult>>,
}

impl Verification {
    /// `now_s`: seconds since 1970.
    pub fn new(identity: SessionIdentity, message: ScannedMessage, is_dmarc_on: bool, now_s: u64) -> Verification {
        Verification {
            identity,
            message,
            now_s,
            is_dmarc_on,
            answers: KnownAnswers::default(),
            iprev: None,
            helo: None,
            mail_from: None,
            dkim: None,
            arc: None,
            dmarc: None,
        }
    }

    pub fn answer(&mut self, question: DnsQuestion, answer: RecordAnswer) {
        self.answers.add(question, answer);
    }

    /// Ends the questions, when time is over.
    pub fn close(&mut self) {
        self.answers.close();
    }

    /// Evaluates the methods that are open.
    pub fn step(&mut self) -> Step {
        let inquiry = Inquiry::new(&self.answers);
        let Verification { identity, message, now_s, .. } = &*self;
        let client = identity.client;
        let iprev = self.iprev.or_else(|| iprev(&inquiry, client).ok());
        let helo = self.helo.or_else(|| helo_result(&inquiry, identity).ok());
        let mail_from = self.mail_from.or_else(|| mail_from_result(&inquiry, identity).ok());
        let (mut dkim_results, mut arc_result) = (None, None);
        if self.dkim.is_none() || self.arc.is_none() {
            let fields = FieldIndex::of(&message.header);
            let (findings, bodies) = (&message.findings, &message.bodies);
            if self.dkim.is_none() {
                dkim_results = dkim(&inquiry, &findings.signatures, &fields, bodies, *now_s).ok();
            }
            if self.arc.is_none() {
                arc_result = arc(&inquiry, &findings.arc, &fields, bodies, *now_s).ok();
            }
        }
        let dkim = self.dkim.as_ref().or(dkim_results.as_ref());
        let dmarc = match (&self.dmarc, helo, mail_from, dkim) {
            (Some(_), ..) => None,
            (None, Some(helo), Some(mail_from), Some(dkim)) => {
                let authenticated = authenticated(identity, helo, mail_from, dkim);
                self.dmarc_results(&inquiry, &authenticated)
            }
            _ => {
                self.authors().iter().for_each(|author| prefetch(&inquiry, author));
                None
            }
        };
        let questions = inquiry.into_questions();
        (self.iprev, self.helo, self.mail_from) = (iprev, helo, mail_from);
        self.dkim = self.dkim.take().or(dkim_results);
        self.arc = self.arc.take().or(arc_result);
        self.dmarc = self.dmarc.take().or(dmarc);
        let is_done = self.iprev.is_some() && self.arc.is_some() && self.dmarc.is_some();
        if is_done { Step::Done } else { Step::Ask(questions) }
    }

    /// Domains for which DMARC is evaluated.
    fn authors(&self) -> &[String] {
        if self.is_dmarc_on { &self.message.findings.authors.domains } else { &[] }
    }

    fn dmarc_results(&self, inquiry: &Inquiry<'_>, authenticated: &AuthenticatedDomains) -> Option<Vec<DmarcResult>> {
        let results: Vec<_> = self.authors().iter().map(|author| dmarc(inquiry, author, authenticated)).collect();
        results.into_iter().collect::<Result<_, _>>().ok()
    }

    /// Returns the results, after [`Step::Done`].
    pub fn into_report(self) -> Report {
        let SessionIdentity { client, sender, .. } = &self.identity;
        let mut spf = Vec::with_capacity(2);
        if !sender.is_empty() {
            let result = self.mail_from.unwrap_or(MethodResult::TempError);
            spf.push(SpfResult { identity: SpfIdentity::MailFrom, name: sender.clone(), result });
        }
        if let Some(helo) = self.identity.helo_domain() {
            let result = self.helo.unwrap_or(MethodResult::TempError);
            spf.push(SpfResult { identity: SpfIdentity::Helo, name: helo, result });
        }
        let unfinished = || ArcResult { result: MethodResult::TempError, reason: None, sets: 0 };
        Report {
            client: *client,
            iprev: self.iprev.unwrap_or(MethodResult::TempError),
            spf,
            dkim: self.dkim.unwrap_or_default(),
            skipped_signatures: self.message.findings.skipped,
            arc: self.arc.unwrap_or_else(unfinished),
            dmarc: self.dmarc.unwrap_or_default(),
            has_more_authors: self.is_dmarc_on && self.message.findings.authors.has_more,
        }
    }
}

fn helo_result(inquiry: &Inquiry<'_>, identity: &SessionIdentity) -> Result<MethodResult, crate::dns::Pending> {
    let Some(domain) = identity.helo_domain() else { return Ok(MethodResult::None) };
    check_host(inquiry, SpfRequest { client: identity.client, helo: &domain, local: "", domain: &domain })
}

fn mail_from_result(inquiry: &Inquiry<'_>, identity: &SessionIdentity) -> Result<MethodResult, crate::dns::Pending> {
    let Some((local, domain)) = identity.mail_from() else { return Ok(MethodResult::None) };
    check_host(inquiry, SpfRequest { client: identity.client, helo: &identity.helo, local, domain })
}

/// The domains that SPF and DKIM have authenticated. The null sender's is the HELO name (RFC 7208 section 2.4).
fn authenticated(
    identity: &SessionIdentity,
    helo: MethodResult,
    mail_from: MethodResult,
    dkim: &[DkimResult],
) -> AuthenticatedDomains {
    let mut all = AuthenticatedDomains::default();
    let (result, domain) = match identity.mail_from() {
        Some((_, domain)) => (mail_from, Some(domain.to_ascii_lowercase())),
        None => (helo, identity.helo_domain()),
    };
    match (result, domain) {
        (MethodResult::Pass, domain) => all.spf = domain,
        (MethodResult::TempError, Some(domain)) => all.unknown.push(domain),
        _ => {}
    }
    for one in dkim {
        let Some(signature) = &one.signature else { continue };
        match one.result {
            MethodResult::Pass if !all.dkim.contains(&signature.domain) => all.dkim.push(signature.domain.clone()),
            MethodResult::TempError => all.unknown.push(signature.domain.clone()),
            _ => {}
        }
    }
    all
}
