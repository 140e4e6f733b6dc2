//! Converts form fields to requests of the control socket; also renders fields that several forms share.
//!
//! Promise: an action names messages, filters or one subject, and never all mail (except `flush`). Failure answer: what
//! is missing or wrong, as a sentence for the next page.

use maud::{Markup, html};
use stentor_config::duration_s;
use stentor_control::selection::{AsOf, REASON_BYTES_MAX, STANDING_S_MAX};
use stentor_control::{Request, Selection, Subject, Verb};
use stentor_queue::ids::MessageId;

/// Maximum messages named by one form.
const IDS_MAX: usize = 1_000;

/// The fields of all forms; empty fields count as missing.
#[derive(Default)]
pub struct Fields {
    pub csrf: String,
    pub next: String,
    verb: String,
    scope: String,
    ids: Vec<String>,
    list: String,
    sender: String,
    site: String,
    recipient: String,
    /// Recipient of a copy.
    to: String,
    /// Minimum age in seconds.
    age: String,
    subscriber: String,
    /// Duration of a suspension: empty for until it is ended, `other`, or a duration with units.
    lasts: String,
    /// The duration if `lasts` is `other`.
    lasts_other: String,
    /// `1`: ask for further fields first.
    pub ask: String,
    pub reason: String,
    /// `1`: confirmed.
    pub sure: String,
    /// Number of recipients in the confirmation.
    counted: String,
    /// The queue state that was counted ([`AsOf`]).
    as_of: String,
}

impl Fields {
    pub fn of(pairs: Vec<(String, String)>) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in pairs {
            let field = match name.as_str() {
                "csrf" => &mut fields.csrf,
                "next" => &mut fields.next,
                "verb" => &mut fields.verb,
                "scope" => &mut fields.scope,
                "list" => &mut fields.list,
                "sender" => &mut fields.sender,
                "site" => &mut fields.site,
                "recipient" => &mut fields.recipient,
                "to" => &mut fields.to,
                "age" => &mut fields.age,
                "subscriber" => &mut fields.subscriber,
                "lasts" => &mut fields.lasts,
                "lasts_other" => &mut fields.lasts_other,
                "ask" => &mut fields.ask,
                "reason" => &mut fields.reason,
                "sure" => &mut fields.sure,
                "counted" => &mut fields.counted,
                "as_of" => &mut fields.as_of,
                "id" => {
                    fields.ids.push(value);
                    continue;
                }
                _ => continue,
            };
            *field = value;
        }
        fields
    }

    /// Whether the confirmation covers this number of recipients.
    pub fn covers(&self, recipients: u64) -> bool {
        self.sure == "1" && self.counted.parse::<u64>().is_ok_and(|counted| recipients <= counted)
    }

    /// Fields that a second form has to repeat, except reason, token and confirmation.
    pub fn repeated(&self) -> Vec<(&'static str, &str)> {
        let texts = [
            ("next", &self.next),
            ("verb", &self.verb),
            ("scope", &self.scope),
            ("list", &self.list),
            ("sender", &self.sender),
            ("site", &self.site),
            ("recipient", &self.recipient),
            ("age", &self.age),
            ("subscriber", &self.subscriber),
        ];
        let given = texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.as_str()));
        given.chain(self.ids.iter().map(|id| ("id", id.as_str()))).collect()
    }

    pub fn request(&self) -> Result<Request, String> {
        let reason = Some(self.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        if reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return Err(format!("The reason is longer than {REASON_BYTES_MAX} octets."));
        }
        if let "suspend" | "resume" = self.verb.as_str() {
            let what = self.subject().ok_or("Name what to suspend or resume.")?;
            let suspended = self.verb == "suspend";
            let for_s = if suspended { self.for_s()? } else { None };
            return Ok(Request::Suspend { suspended, what, reason, for_s, dry_run: false });
        }
        if self.verb == "flush" {
            let site = Some(self.site.clone()).filter(|site| !site.is_empty());
            return Ok(Request::Flush { site, dry_run: false });
        }
        if self.verb == "quarantine_copy" {
            let [id] = self.ids.as_slice() else { return Err("Select exactly one message to copy.".to_owned()) };
            let id = id.parse().map_err(|_| format!("{id:?} is not a valid queue ID."))?;
            return Ok(Request::QuarantineCopy { id, to: self.to.trim().to_owned(), reason });
        }
        let known = Verb::ALL.into_iter().find(|verb| verb.name() == self.verb);
        let verb = known.ok_or("No action was chosen: press one of the buttons.")?;
        Ok(Request::Act { verb, selection: self.selection(verb)?, dry_run: false, reason })
    }

    /// Duration of a suspension; `None` until it is ended.
    fn for_s(&self) -> Result<Option<u64>, String> {
        let text = if self.lasts == "other" { self.lasts_other.trim() } else { self.lasts.as_str() };
        if text.is_empty() {
            let is_endless = self.lasts.is_empty();
            return if is_endless { Ok(None) } else { Err("Enter how long to suspend: 90m, 12h or 2d.".to_owned()) };
        }
        match duration_s(text) {
            Ok(s) if (1..=STANDING_S_MAX).contains(&s) => Ok(Some(s)),
            Ok(_) => Err(format!("A suspension lasts from 1 second to {} days.", STANDING_S_MAX / 86_400)),
            Err(_) => Err(format!("{text:?} is not a duration. Enter a number and a unit: 90m, 12h or 2d.")),
        }
    }

    /// The selected messages, or all that match a filter: never all mail.
    fn selection(&self, verb: Verb) -> Result<Selection, String> {
        if self.scope == "matching" {
            let given = |text: &String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
            let age_s_min = given(&self.age).map(|age| age.parse()).transpose();
            let selection = Selection {
                list: given(&self.list),
                sender: given(&self.sender).map(|text| if text == "<>" { String::new() } else { text }),
                site: given(&self.site),
                recipient: given(&self.recipient),
                age_s_min: age_s_min.map_err(|_| "The age must be a number of seconds.".to_owned())?,
                as_of: self.as_of()?,
                ..Selection::default()
            };
            let is_narrow = selection.is_narrow();
            return if is_narrow { Ok(selection) } else { Err("No filter is set: filter the queue first.".to_owned()) };
        }
        if self.ids.is_empty() {
            let to = match verb {
                Verb::Requeue => "retry",
                verb => verb.name().trim_start_matches("quarantine_"),
            };
            return Err(format!("No message is selected: tick the messages to {to}, then press the button again."));
        }
        if self.ids.len() > IDS_MAX {
            return Err(format!("Select at most {IDS_MAX} messages at a time."));
        }
        let ids: Result<Vec<MessageId>, _> = self.ids.iter().map(|id| id.parse()).collect();
        Ok(Selection { ids: ids.map_err(|_| "Invalid queue ID.".to_owned())?, ..Selection::default() })
    }

    /// The queue state that was counted; `None` before a count.
    fn as_of(&self) -> Result<Option<AsOf>, String> {
        let as_of = (!self.as_of.is_empty()).then(|| self.as_of.parse()).transpose();
        as_of.map_err(|_| "The form is damaged: filter the queue again.".to_owned())
    }

    fn subject(&self) -> Option<Subject> {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        match (given(&self.list), given(&self.sender), given(&self.site), given(&self.subscriber)) {
            (Some(list), None, None, None) => Some(Subject::List(list)),
            (None, Some(sender), None, None) => Some(Subject::Sender(sender)),
            (None, None, Some(site), None) => Some(Subject::Site(site)),
            (Some(list), None, None, Some(address)) => Some(Subject::Subscriber { list, address }),
            _ => None,
        }
    }
}

/// Input for the duration of a suspension. The field for another duration is shown once that is chosen.
pub fn duration(of: &str) -> Markup {
    const CHOICES: [(&str, &str); 5] = [
        ("", "until resumed by hand"),
        ("1h", "for 1 hour"),
        ("4h", "for 4 hours"),
        ("1d", "for 1 day"),
        ("other", "for another duration…"),
    ];
    html! {
        div.lasts {
            label for={ (of) "-lasts" } { "Suspend" }
            select id={ (of) "-lasts" } name="lasts" { @for (value, words) in CHOICES { option value=(value) { (words) } } }
        }
        div.other {
            label for={ (of) "-other" } { "Duration" }
            input id={ (of) "-other" } name="lasts_other" placeholder="90m, 12h, 2d" autocomplete="off" spellcheck="false";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields::of(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn forms_are_requests() {
        let site = |verb: &str| fields(&[("verb", verb), ("site", "a.example")]);
        let subject = Subject::Site("a.example".into());
        assert_eq!(
            site("suspend").request(),
            Ok(Request::Suspend { suspended: true, what: subject, reason: None, for_s: None, dry_run: false })
        );
        for (lasts, other, for_s) in [("4h", "9d", Some(14_400)), ("other", " 1d12h ", Some(129_600)), ("", "9d", None)]
        {
            let fields = fields(&[("verb", "suspend"), ("list", "news"), ("lasts", lasts), ("lasts_other", other)]);
            let subject = Subject::List("news".into());
            assert_eq!(
                fields.request(),
                Ok(Request::Suspend { suspended: true, what: subject, reason: None, for_s, dry_run: false })
            );
        }
        for wrong in ["", "90", "x", "0s", "500d"] {
            let fields = fields(&[("verb", "suspend"), ("list", "news"), ("lasts", "other"), ("lasts_other", wrong)]);
            assert!(fields.request().is_err(), "{wrong}");
        }
        assert_eq!(site("flush").request(), Ok(Request::Flush { site: Some("a.example".into()), dry_run: false }));
        for verb in ["", "stop", "remove", "hold"] {
            assert!(site(verb).request().is_err(), "{verb}: no message is named");
        }
        let two = fields(&[("verb", "suspend"), ("site", "a.example"), ("sender", "b.example")]);
        assert!(two.request().is_err(), "name one subject, not two");
    }

    #[test]
    fn what_is_missing_is_said() {
        let why = fields(&[("verb", "remove")]).request().unwrap_err();
        assert!(why.starts_with("No message is selected: tick the messages to remove"), "{why}");
        assert!(fields(&[("id", "x")]).request().unwrap_err().starts_with("No action was chosen"));
        assert_eq!(fields(&[("verb", "hold"), ("id", "x")]).request(), Err("Invalid queue ID.".to_owned()));
        let long = "x".repeat(REASON_BYTES_MAX + 1);
        assert!(fields(&[("verb", "flush"), ("reason", &long)]).request().is_err());
        let all = fields(&[("verb", "remove"), ("scope", "matching"), ("list", " ")]).request();
        assert!(all.unwrap_err().starts_with("No filter is set"), "never all mail");
    }

    #[test]
    fn selected_messages_survive_the_second_form() {
        let ids = [7, 9].map(|n| MessageId(n).to_string());
        let asked = fields(&[("verb", "remove"), ("id", &ids[0]), ("id", &ids[1]), ("csrf", "t"), ("next", "/queue")]);
        let again = Fields::of(asked.repeated().into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect());
        assert_eq!(again.request(), asked.request());
        assert!(matches!(again.request(), Ok(Request::Act { selection, .. }) if selection.ids.len() == 2));
        assert!(again.csrf.is_empty());
        let matching =
            fields(&[("verb", "hold"), ("scope", "matching"), ("sender", "<>"), ("age", "60"), ("id", &ids[0])]);
        let Ok(Request::Act { selection, .. }) = matching.request() else { panic!("it is one") };
        assert_eq!((selection.sender.as_deref(), selection.age_s_min, selection.ids.len()), (Some(""), Some(60), 0));
    }
}
