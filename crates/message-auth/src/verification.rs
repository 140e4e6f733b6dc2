//! All methods for one message: asks questions, takes answers, ends with [`AuthResults`].
//!
//! States: each method is open until its answers are known, and is then never evaluated again. DMARC follows SPF and
//! DKIM. DMARC of a list's copies follows DKIM alone, and only signatures that copies do not break.
//!
//! Failure: after [`Verification::close`] what is unknown counts as a DNS failure, and the next step is the last.

use std::net::{IpAddr, Ipv4Addr};

use stentor_dkim::FieldIndex;

use crate::arc::{ArcResult, arc};
use crate::dkim::{DkimResult, dkim};
use crate::dmarc::{AuthenticatedDomains, DmarcResult, dmarc, prefetch};
use crate::dns::{DnsQuestion, Inquiry, KnownAnswers, RecordAnswer, is_domain};
use crate::method::MethodResult;
use crate::results::{AuthResults, SpfIdentity, SpfResult};
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
    /// For a post: names of the header fields that copies of lists have instead of the message's own, in lower case.
    replaced_fields: Option<Vec<String>>,
    answers: KnownAnswers,
    iprev: Option<MethodResult>,
    helo: Option<MethodResult>,
    mail_from: Option<MethodResult>,
    dkim: Option<Vec<DkimResult>>,
    arc: Option<ArcResult>,
    dmarc: Option<Vec<DmarcResult>>,
    copies: Option<Vec<DmarcResult>>,
}

impl Verification {
    /// `now_s`: seconds since 1970.
    pub fn new(identity: SessionIdentity, message: ScannedMessage, is_dmarc_on: bool, now_s: u64) -> Verification {
        Verification {
            identity,
            message,
            now_s,
            is_dmarc_on,
            replaced_fields: None,
            answers: KnownAnswers::default(),
            iprev: None,
            helo: None,
            mail_from: None,
            dkim: None,
            arc: None,
            dmarc: None,
            copies: Some(Vec::new()),
        }
    }

    /// Verifies only whether a list's copies will pass DMARC; see [`Verification::with_copies`].
    pub fn of_copies(message: ScannedMessage, replaced_fields: Vec<String>, now_s: u64) -> Verification {
        let identity =
            SessionIdentity { client: Ipv4Addr::UNSPECIFIED.into(), helo: String::new(), sender: String::new() };
        let none = Some(MethodResult::None);
        Verification {
            iprev: none,
            helo: none,
            mail_from: none,
            arc: Some(ArcResult { result: MethodResult::None, reason: None, sets: 0 }),
            dmarc: Some(Vec::new()),
            ..Verification::new(identity, message, false, now_s).with_copies(replaced_fields)
        }
    }

    /// Also verifies whether a list's copies will pass DMARC. `replaced_fields`: names of the header fields that they
    /// have instead of the message's own, in lower case.
    #[must_use]
    pub fn with_copies(self, replaced_fields: Vec<String>) -> Verification {
        Verification { replaced_fields: Some(replaced_fields), copies: None, ..self }
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
        let copies = match (&self.copies, dkim) {
            (None, Some(dkim)) => self.results_of_copies(&inquiry, dkim),
            _ => None,
        };
        if self.copies.is_none() && dkim.is_none() {
            message.findings.authors.domains.iter().for_each(|author| prefetch(&inquiry, author));
        }
        let questions = inquiry.into_questions();
        (self.iprev, self.helo, self.mail_from) = (iprev, helo, mail_from);
        self.dkim = self.dkim.take().or(dkim_results);
        self.arc = self.arc.take().or(arc_result);
        self.dmarc = self.dmarc.take().or(dmarc);
        self.copies = self.copies.take().or(copies);
        let is_done = self.iprev.is_some() && self.arc.is_some() && self.dmarc.is_some() && self.copies.is_some();
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

    /// The return path of copies is the list's, so that SPF never authenticates their author.
    fn results_of_copies(&self, inquiry: &Inquiry<'_>, dkim: &[DkimResult]) -> Option<Vec<DmarcResult>> {
        let replaced = self.replaced_fields.as_deref().unwrap_or_default();
        let mut authenticated = AuthenticatedDomains::default();
        let lasts = |one: &&DkimResult| {
            one.signature.as_ref().is_some_and(|signature| !signature.fields.iter().any(|name| replaced.contains(name)))
        };
        authenticated.add_signatures(dkim.iter().filter(lasts));
        let authors = &self.message.findings.authors.domains;
        let results: Vec<_> = authors.iter().map(|author| dmarc(inquiry, author, &authenticated)).collect();
        results.into_iter().collect::<Result<_, _>>().ok()
    }

    /// Returns the results, after [`Step::Done`].
    pub fn into_results(self) -> AuthResults {
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
        AuthResults {
            client: *client,
            iprev: self.iprev.unwrap_or(MethodResult::TempError),
            spf,
            dkim: self.dkim.unwrap_or_default(),
            skipped_signatures: self.message.findings.skipped,
            arc: self.arc.unwrap_or_else(unfinished),
            dmarc: self.dmarc.unwrap_or_default(),
            has_more_authors: self.is_dmarc_on && self.message.findings.authors.has_more,
            copies_have_more_authors: self.replaced_fields.is_some() && self.message.findings.authors.has_more,
            copies: self.copies.unwrap_or_default(),
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
    all.add_signatures(dkim.iter());
    all
}
