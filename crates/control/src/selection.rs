//! Selects the mail for an operator's action: selectors that narrow each other, see `docs/operate/control-protocol.md`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::{MessageId, Ms};

use super::problem::{ErrorCode, Problem};

/// Maximum octets of a verb's reason, which goes into the journal once per batch and into reports.
pub const REASON_BYTES_MAX: usize = 500;

/// Checks a reason's length.
///
/// # Errors
/// The reason is too long.
pub fn check_reason(reason: Option<&str>) -> Result<(), String> {
    match reason {
        Some(reason) if reason.len() > REASON_BYTES_MAX => {
            Err(format!("reason must have at most {REASON_BYTES_MAX} octets"))
        }
        _ => Ok(()),
    }
}

pub(crate) const NO_SITE: &str = "quarantined mail belongs to no site; select by id, sender, recipient, list or age";

const NO_SUBJECT: &str = "the quarantine cannot be selected by subject; find ids with `stentor quarantine list`, or select by sender, recipient, list or age";

/// Maximum duration of a suspension or bounce that expires: a year.
pub const STANDING_S_MAX: u64 = 366 * 86_400;

/// A verb that acts on mail and is journaled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    Hold,
    Release,
    Remove,
    Bounce,
    Requeue,
    /// From the quarantine into the queue.
    QuarantineRelease,
    QuarantineDelete,
    /// Sends kept posts to those that missed them.
    Resend,
}

impl Verb {
    pub const ALL: [Verb; 8] = [
        Verb::Hold,
        Verb::Release,
        Verb::Remove,
        Verb::Bounce,
        Verb::Requeue,
        Verb::QuarantineRelease,
        Verb::QuarantineDelete,
        Verb::Resend,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verb::Hold => "hold",
            Verb::Release => "release",
            Verb::Remove => "remove",
            Verb::Bounce => "bounce",
            Verb::Requeue => "requeue",
            Verb::QuarantineRelease => "quarantine_release",
            Verb::QuarantineDelete => "quarantine_delete",
            Verb::Resend => "resend",
        }
    }
}

/// The queue state that a dry run counted: an action with it excludes later mail. `NUMBER.MS` in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(into = "String", try_from = "String")]
pub struct AsOf {
    /// Messages had numbers below this one.
    pub next: u32,
    /// The time of the count, from which ages are measured. Numbers restart with the server, times do not.
    pub at: Ms,
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.next, self.at)
    }
}

impl FromStr for AsOf {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<AsOf, &'static str> {
        let parts = text.split_once('.').and_then(|(next, at)| Some((next.parse().ok()?, at.parse().ok()?)));
        parts.map(|(next, at)| AsOf { next, at }).ok_or("as_of must be a value that a dry run returned")
    }
}

impl From<AsOf> for String {
    fn from(as_of: AsOf) -> String {
        as_of.to_string()
    }
}

impl TryFrom<String> for AsOf {
    type Error = &'static str;

    fn try_from(text: String) -> Result<AsOf, &'static str> {
        text.parse()
    }
}

/// Selectors, all of which must match; none at all means everything.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Selection {
    pub ids: Vec<MessageId>,
    /// An exact address, empty for the null path, or `@domain`.
    pub sender: Option<String>,
    pub recipient: Option<String>,
    pub site: Option<String>,
    pub list: Option<String>,
    /// Part of the decoded subject, ignoring case.
    pub subject: Option<String>,
    /// Minimum age since acceptance, in seconds.
    pub age_s_min: Option<u64>,
    pub age_s_max: Option<u64>,
    /// Only mail that was queued then. It narrows the others and is not a selector by itself.
    pub as_of: Option<AsOf>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ids {
    One(String),
    Many(Vec<String>),
}

/// The arguments. Strict, so that a misspelt selector does not silently mean "all".
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A queue id; in a request body also an array of queue ids.
    id: Option<Ids>,
    /// Envelope sender: exact, empty for the null path, or @domain.
    sender: Option<String>,
    /// Recipient, exact or @domain.
    recipient: Option<String>,
    /// A site's name, as in the queue.
    site: Option<String>,
    /// A list's name.
    list: Option<String>,
    /// Part of the decoded subject, ignoring case.
    subject: Option<String>,
    /// Minimum age in seconds.
    age_s_min: Option<u64>,
    /// Maximum age in seconds.
    age_s_max: Option<u64>,
    /// Only mail queued when a dry run returned this value.
    as_of: Option<AsOf>,
    /// Select everything; excludes other selectors.
    #[serde(default)]
    all: bool,
    /// Only count the affected recipients.
    dry_run: Option<bool>,
    /// Recorded in the journal's audit record and in the DSNs of `bounce`.
    reason: Option<String>,
    /// Also bounce mail that arrives within this many seconds (sender, recipient domain, site, list).
    for_s: Option<u64>,
    /// End such a standing bounce early.
    #[serde(default)]
    end: bool,
}

/// The parsed arguments of a verb.
pub struct ActionArguments {
    pub selection: Selection,
    pub dry_run: bool,
    pub reason: Option<String>,
    pub standing: Option<BounceTerm>,
}

/// Starts or ends a standing bounce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BounceTerm {
    /// For this many seconds from now.
    For(u64),
    /// Ends it now.
    End,
}

/// Parses a verb's arguments. `acts`: the verb accepts `dry_run` and `reason`, and needs a selector.
pub fn parse(verb: &str, fields: &Value, acts: bool) -> Result<ActionArguments, Problem> {
    let bad = |text: String| Problem::new(ErrorCode::BadRequest, format!("{verb}: {text}"));
    let a = Arguments::deserialize(fields).map_err(|e| bad(e.to_string()))?;
    let ids = match a.id {
        None => Vec::new(),
        Some(Ids::One(id)) => vec![id],
        Some(Ids::Many(ids)) if ids.is_empty() => return Err(bad("an empty array of ids selects nothing".to_owned())),
        Some(Ids::Many(ids)) => ids,
    };
    let ids = ids.iter().map(|id| id.parse().map_err(|e| bad(format!("{id:?}: {e}")))).collect::<Result<_, _>>()?;
    if a.subject.as_deref().is_some_and(|subject| subject.trim().is_empty()) {
        return Err(bad("an empty subject would select all mail".to_owned()));
    }
    let selection = Selection {
        ids,
        sender: a.sender,
        recipient: a.recipient,
        site: a.site,
        list: a.list,
        subject: a.subject,
        age_s_min: a.age_s_min,
        age_s_max: a.age_s_max,
        as_of: a.as_of,
    };
    let is_narrow = selection.is_narrow();
    if a.all && is_narrow {
        return Err(bad("\"all\" and selectors cannot be used together".to_owned()));
    }
    if acts && !a.all && !is_narrow {
        return Err(bad("name a selector, or \"all\":true".to_owned()));
    }
    if !acts && (a.dry_run.is_some() || a.reason.is_some()) {
        return Err(bad("dry_run and reason are only valid for verbs that change something".to_owned()));
    }
    check_reason(a.reason.as_deref()).map_err(bad)?;
    let is_quarantine = [Verb::QuarantineRelease.name(), Verb::QuarantineDelete.name()].contains(&verb);
    if is_quarantine && selection.site.is_some() {
        return Err(bad(NO_SITE.to_owned()));
    }
    if is_quarantine && selection.subject.is_some() {
        return Err(bad(NO_SUBJECT.to_owned()));
    }
    let only_ids = Selection { ids: selection.ids.clone(), as_of: selection.as_of, ..Selection::default() };
    if verb == Verb::Resend.name() && (selection.ids.is_empty() || selection != only_ids) {
        return Err(bad("a post to resend is selected by its id alone".to_owned()));
    }
    let standing = match (a.for_s, a.end) {
        (None, false) => None,
        _ if verb != Verb::Bounce.name() => return Err(bad("for_s and end are only valid for bounce".to_owned())),
        (Some(_), true) => return Err(bad("for_s and end cannot be used together".to_owned())),
        (None, true) if a.dry_run == Some(true) => return Err(bad("dry_run cannot be used with end".to_owned())),
        (None, true) => Some(BounceTerm::End),
        (Some(for_s @ 1..=STANDING_S_MAX), false) => Some(BounceTerm::For(for_s)),
        (Some(_), false) => return Err(bad(format!("for_s must be from 1 to {STANDING_S_MAX}"))),
    };
    if standing.is_some() && !selection.is_of_the_future() {
        let text = "a standing bounce needs a site, a list, a sender or a recipient's domain (@domain), or several of \
            these";
        return Err(bad(text.to_owned()));
    }
    if matches!(standing, Some(BounceTerm::For(_))) && selection.sender.as_deref() == Some("") {
        let text = "a standing bounce of the null sender would discard all delivery status notifications";
        return Err(bad(text.to_owned()));
    }
    Ok(ActionArguments { selection, dry_run: a.dry_run.unwrap_or(false), reason: a.reason, standing })
}

impl Selection {
    /// Selects the pending recipients of a queue id, an address or a domain. `None` for a Message-ID, by which the
    /// server cannot find mail.
    pub fn about(what: &str) -> Option<Selection> {
        match what.parse() {
            Ok(id) => Some(Selection { ids: vec![id], ..Selection::default() }),
            Err(_) if what.starts_with('<') => None,
            Err(_) if what.contains('@') => {
                Some(Selection { recipient: Some(what.to_owned()), ..Selection::default() })
            }
            Err(_) => Some(Selection { recipient: Some(format!("@{what}")), ..Selection::default() }),
        }
    }

    /// Whether it may cover future mail: not by id or age, not everything, and not a single recipient.
    fn is_of_the_future(&self) -> bool {
        let by_age = self.age_s_min.is_some() || self.age_s_max.is_some() || self.as_of.is_some();
        let is_domain = self.recipient.as_ref().is_none_or(|recipient| recipient.starts_with('@'));
        self.ids.is_empty() && self.subject.is_none() && !by_age && is_domain && self.is_narrow()
    }

    /// Whether it has a selector; without one it means all mail.
    pub fn is_narrow(&self) -> bool {
        *self != Selection { as_of: self.as_of, ..Selection::default() }
    }

    /// The given selectors as JSON; `{"all":true}` if there are none.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let ids: Vec<String> = self.ids.iter().map(ToString::to_string).collect();
        let texts = [
            ("sender", &self.sender),
            ("recipient", &self.recipient),
            ("site", &self.site),
            ("list", &self.list),
            ("subject", &self.subject),
        ];
        if !ids.is_empty() {
            fields.insert("id".to_owned(), ids.into());
        }
        for (name, text) in texts {
            if let Some(text) = text {
                fields.insert(name.to_owned(), text.as_str().into());
            }
        }
        for (name, age) in [("age_s_min", self.age_s_min), ("age_s_max", self.age_s_max)] {
            if let Some(age) = age {
                fields.insert(name.to_owned(), age.into());
            }
        }
        if fields.is_empty() {
            fields.insert("all".to_owned(), true.into());
        }
        if let Some(as_of) = self.as_of {
            fields.insert("as_of".to_owned(), as_of.to_string().into());
        }
        fields
    }
}

/// The result of a verb or its dry run.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct ActionResult {
    /// The result in words.
    pub text: String,
    /// Number of recipients.
    pub count: Option<u64>,
    /// Number of messages.
    pub messages: Option<u64>,
    /// Selected recipients that are in a transaction.
    pub in_flight: Option<u64>,
    /// Selected messages that need no change, such as those held already.
    pub unchanged: Option<u64>,
    /// Selected recipients that are not tried: held, suspended or queue-only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// The recipients were only counted.
    pub dry_run: Option<bool>,
    /// After a dry run: the queue state, for an action on exactly what was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<AsOf>,
}

impl ActionResult {
    /// Whether nothing in the queue matched.
    pub fn matches_nothing(&self) -> bool {
        [self.count, self.messages, self.in_flight, self.unchanged, self.kept].iter().all(|n| n.unwrap_or(0) == 0)
    }
}
