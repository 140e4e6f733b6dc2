//! The command line of actions on mail: `stentor hold|release|remove|bounce|requeue` and `stentor queue export`.

use clap::Args;
use stentor_config::duration_s;
use stentor_control::{BounceTerm, Request, Selection, Subject, Verb};
use stentor_queue::ids::MessageId;
use stentor_queue::queue_only::Scope;

/// Parses an envelope sender; rejects the empty word that an unset shell variable leaves.
pub(crate) fn sender(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("an empty sender selects nothing; write '<>' for the null sender"),
        "<>" => Ok(String::new()),
        text => Ok(text.to_owned()),
    }
}

/// Selected mail: all given selectors must match.
#[derive(Args, Default)]
pub struct Selectors {
    /// Messages by queue id; may be given several times.
    #[arg(long, value_name = "ID")]
    id: Vec<MessageId>,
    /// By envelope sender: an address, @domain, or '<>' for the null sender.
    #[arg(long, value_name = "ADDRESS", value_parser = sender)]
    sender: Option<String>,
    /// By recipient: an address or @domain.
    #[arg(long, value_name = "ADDRESS")]
    recipient: Option<String>,
    /// Recipients at a site, as `stentor queue` shows it.
    #[arg(long)]
    site: Option<String>,
    /// Messages of a list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Part of the subject, ignoring case; reads every header.
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Accepted longer ago than this: 90s, 15m, 36h, 5d.
    #[arg(long, value_name = "AGE", value_parser = duration_s)]
    older_than: Option<u64>,
    /// Accepted more recently than this.
    #[arg(long, value_name = "AGE", value_parser = duration_s)]
    younger_than: Option<u64>,
    /// Everything, instead of selectors.
    #[arg(long, conflicts_with_all = ["id", "sender", "recipient", "site", "list", "subject", "older_than", "younger_than"])]
    all: bool,
}

/// The subject of `suspend` and `resume`.
#[derive(Args)]
pub struct SuspendSubject {
    /// All posts of a list; with --subscriber, only those to one subscriber.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    #[arg(long, value_name = "ADDRESS", requires = "list")]
    subscriber: Option<String>,
    /// All other mail from a domain; of ordinary mail, only what is accepted from now on (use `hold` for waiting mail).
    #[arg(long, value_name = "DOMAIN", conflicts_with = "list")]
    sender: Option<String>,
    /// All mail to a site: its name as `stentor queue` shows it, or a domain that it serves.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["list", "sender"])]
    site: Option<String>,
    /// Recorded in the journal's audit record.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl SuspendSubject {
    /// The subject and the reason.
    ///
    /// # Errors
    /// Neither a list, a sender nor a site is given.
    pub fn subject(self) -> Result<(Subject, Option<String>), String> {
        let what = match (self.list, self.subscriber, self.sender, self.site) {
            (Some(list), Some(address), ..) => Subject::Subscriber { list, address },
            (Some(list), None, ..) => Subject::List(list),
            (None, _, Some(domain), _) => Subject::Sender(domain),
            (None, _, None, Some(site)) => Subject::Site(site),
            _ => return Err("name one: --list, --sender, --site, or --list with --subscriber".to_owned()),
        };
        Ok((what, self.reason))
    }
}

/// What is queue-only.
#[derive(Args)]
#[group(id = "what", multiple = false)]
pub struct QueueOnlyScope {
    /// All mail.
    #[arg(long)]
    all: bool,
    /// Mail of a class: ordinary or bulk.
    #[arg(long, value_parser = ["ordinary", "bulk"])]
    class: Option<String>,
    /// Posts of a list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Recipients at a domain.
    #[arg(long)]
    domain: Option<String>,
    /// By envelope sender: an address, @domain, or '<>' for the null sender.
    #[arg(long, value_name = "ADDRESS", value_parser = sender)]
    sender: Option<String>,
    /// By origin: an IP address, a network, or a local user.
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Mail that only this source of the configuration may send.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
}

impl QueueOnlyScope {
    /// The selected scope.
    ///
    /// # Errors
    /// No scope is given, or the given one is not valid.
    pub fn scope(self) -> Result<Scope, String> {
        let named = [
            ("all", self.all.then(String::new)),
            ("class", self.class),
            ("list", self.list),
            ("domain", self.domain),
            ("sender", self.sender),
            ("client", self.client),
            ("source", self.source),
        ];
        let Some((kind, value)) = named.into_iter().find_map(|(kind, value)| Some((kind, value?))) else {
            return Err("queue-only: name the mail: --all, --class, --list, --domain, --sender, --client or --source"
                .to_owned());
        };
        Scope::of_parts(kind, &value).ok_or_else(|| format!("queue-only: --{kind} cannot be {value:?}"))
    }
}

/// What all verbs that act on mail take.
#[derive(Args)]
pub struct ActionArgs {
    #[command(flatten)]
    selectors: Selectors,
    /// Count the selected mail, without changing anything.
    #[arg(long)]
    dry_run: bool,
    /// Recorded in the journal's audit record; `bounce` quotes it to the sender.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Selectors {
    /// Whether neither a selector nor `--all` is given.
    fn is_empty(&self) -> bool {
        !self.all && self.selection() == Selection::default()
    }

    pub fn selection(&self) -> Selection {
        Selection {
            ids: self.id.clone(),
            sender: self.sender.clone(),
            recipient: self.recipient.clone(),
            site: self.site.clone(),
            list: self.list.clone(),
            subject: self.subject.clone(),
            age_s_min: self.older_than,
            age_s_max: self.younger_than,
            as_of: None,
        }
    }
}

impl ActionArgs {
    /// Builds the request for a verb.
    ///
    /// # Errors
    /// No selector is given.
    pub fn request(self, verb: Verb) -> Result<Request, String> {
        if self.selectors.is_empty() {
            let name = verb.name().replace('_', " ");
            return Err(format!("{name}: select mail with selectors or --all (see --help)"));
        }
        let selection = self.selectors.selection();
        Ok(Request::Act { verb, selection, dry_run: self.dry_run, reason: self.reason })
    }

    /// Builds the request that sends a copy of a quarantined message.
    ///
    /// # Errors
    /// The selectors do not name exactly one message.
    pub fn copy(self, to: String) -> Result<Request, String> {
        match *self.selectors.id {
            [id] => Ok(Request::QuarantineCopy { id, to, reason: self.reason }),
            _ => Err("quarantine release: --to is for one message".to_owned()),
        }
    }

    /// Builds the request that starts or ends a standing bounce.
    ///
    /// # Errors
    /// No selector is given.
    pub fn standing(self, standing: BounceTerm) -> Result<Request, String> {
        if self.selectors.is_empty() {
            return Err("bounce: name the mail: --site, --list, --sender or --recipient @domain".to_owned());
        }
        let selection = self.selectors.selection();
        Ok(Request::Bounce { selection, standing, dry_run: self.dry_run, reason: self.reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_selector_is_not_everything() {
        let acting = |selectors| ActionArgs { selectors, dry_run: false, reason: None };
        assert!(acting(Selectors::default()).request(Verb::Remove).is_err());
        let all = Selectors { all: true, ..Selectors::default() };
        assert!(acting(all).request(Verb::Remove).is_ok());
        let null = Selectors { sender: Some(String::new()), ..Selectors::default() };
        assert!(acting(null).request(Verb::Remove).is_ok(), "the null sender is a selector");
    }
}
