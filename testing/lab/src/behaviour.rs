//! The behaviour of a simulated mail host: delays, refusals, limits and faults, in any combination.
//!
//! Promise: a [`Behaviour`] is plain checked data. Which recipients are refused, and which transactions a fault hits,
//! follow from the scenario's seed and the address alone ([`share_hits`]), never from the order of events, so that a
//! test can compute beforehand who must get a copy ([`Behaviour::recipient_fate`]).
//!
//! Faults are attached to a stage of the session (`at_greeting` ... `at_dot`); each is one [`Action`]. A `script`
//! ([`crate::script`]) can express more, and its rules take precedence. Time windows are kept beside the behaviours
//! (see [`crate::scenario`]): inside one, the window's table overrides the site's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::script::Rule;
use crate::tls::Tls;

/// A fault or refusal at one stage of the session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Action {
    /// No answer any more; the connection stays open.
    Hang,
    /// Orderly close (FIN) without an answer.
    Drop,
    /// Abortive close (RST) without an answer.
    Reset,
    /// A multi-line reply that never ends.
    Endless,
    /// A reply of this code and text; 421 closes the connection afterwards (RFC 5321 3.8).
    Reply(u16, String),
}

impl TryFrom<String> for Action {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "hang" => return Ok(Self::Hang),
            "drop" => return Ok(Self::Drop),
            "reset" => return Ok(Self::Reset),
            "endless" => return Ok(Self::Endless),
            _ => {}
        }
        let (code, rest) = text.split_at_checked(3).unwrap_or((text.as_str(), ""));
        match code.parse::<u16>() {
            Ok(code @ 200..=599) if rest.is_empty() || rest.starts_with(' ') => {
                let rest = if rest.is_empty() { " as the scenario says" } else { rest };
                if rest.bytes().any(|b| b < b' ' || b == 0x7f) {
                    return Err(format!("control character in reply {text:?}"));
                }
                Ok(Self::Reply(code, rest[1..].to_owned()))
            }
            _ => Err(format!("{text:?} is neither hang, drop, reset, endless nor a reply such as \"450 4.2.0 later\"")),
        }
    }
}

/// What happens to a TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connect {
    /// Accepted.
    #[default]
    Accept,
    /// Nothing listens: the client gets ECONNREFUSED.
    Refuse,
    /// The SYN is never answered: the client runs into its connect time-out.
    NeverAccept,
    /// Accepted and reset at once.
    Reset,
}

/// Whom greylisting remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GreylistBy {
    /// The pair of sender and recipient, as most greylisting does.
    #[default]
    Pair,
    /// The recipient alone.
    Recipient,
}

/// The behaviour of one host. Everything defaults to "a good host at no distance".
///
/// Shares are 0.0 to 1.0; times are in the unit of their name's ending.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// What happens to connections.
    pub connect: Connect,
    /// Round-trip time: each reply leaves this long after its command came, and the greeting after twice that (the TCP
    /// handshake is not delayed itself). Commands that arrive together are answered together.
    pub rtt_ms: u32,
    /// Extra time taken over the message after its end of data.
    pub dot_delay_ms: u32,
    /// Time that the host works before each of its replies; commands that arrive together are worked on one after the
    /// other and answered together. The following are added for their command's reply.
    pub reply_delay_ms: u32,
    pub greeting_delay_ms: u32,
    pub ehlo_delay_ms: u32,
    pub mail_delay_ms: u32,
    pub rcpt_delay_ms: u32,
    pub data_delay_ms: u32,
    pub quit_delay_ms: u32,
    /// Pause before each single byte of a reply; 0 = replies are written whole.
    pub trickle_ms: u32,
    /// STARTTLS is offered, and what comes of it.
    pub tls: Option<Tls>,
    /// The handshake comes before the greeting (RFC 8314).
    pub tls_implicit: bool,
    /// Mail is taken within TLS only (530 5.7.0).
    pub tls_required: bool,
    /// REQUIRETLS (RFC 8689) is offered within TLS.
    pub requiretls: bool,
    /// Mail without REQUIRETLS is not taken (550 5.7.1).
    pub requiretls_only: bool,
    /// AUTH is offered within TLS, and needed before MAIL: `user:password`, for PLAIN and LOGIN.
    pub auth: Option<String>,
    /// A file of lines `user:token`, read at each login: AUTH by XOAUTH2 and OAUTHBEARER, and by nothing else.
    pub auth_tokens: Option<PathBuf>,
    /// AUTH is offered in clear as well.
    pub auth_in_clear: bool,
    /// Faults per stage.
    pub at_greeting: Option<Action>,
    pub at_ehlo: Option<Action>,
    pub at_starttls: Option<Action>,
    pub at_auth: Option<Action>,
    pub at_mail: Option<Action>,
    pub at_rcpt: Option<Action>,
    /// At DATA (before 354), or at the first BDAT.
    pub at_data: Option<Action>,
    /// In mid-data, once `body_bytes` of the message have come.
    pub at_body: Option<Action>,
    /// After the end of data.
    pub at_dot: Option<Action>,
    pub at_quit: Option<Action>,
    /// Octets of the message received before `at_body` strikes.
    pub body_bytes: u64,
    /// With a silent `at_dot` (hang, drop, reset): the message was stored all the same and counts as a copy.
    pub dot_keeps: bool,
    /// Share of the sessions (greeting, EHLO) or transactions (later stages) that the faults hit.
    pub fault_share: f64,
    /// Share of the recipients refused with `reject_reply`, chosen by hash of the address.
    pub reject_share: f64,
    /// Local parts refused with `reject_reply`.
    pub reject_users: Vec<String>,
    pub reject_reply: Action,
    /// Share of the recipients with a full mailbox (452 4.2.2).
    pub full_share: f64,
    /// Local parts with a full mailbox.
    pub full_users: Vec<String>,
    /// Greylisting: 451 until this long after the first attempt. 0 = off.
    pub greylist_ms: u32,
    pub greylist_by: GreylistBy,
    /// 421 at the MAIL after this many messages over one connection. 0 = no limit; so with all limits below.
    pub messages_per_connection_max: u32,
    /// 421 at the greeting beyond this many open connections of the site.
    pub connections_max: u32,
    /// 452 4.5.3 beyond this many recipients of one transaction.
    pub recipients_per_transaction_max: u32,
    /// 450 4.7.1 at MAIL beyond this many messages of the site in one minute.
    pub messages_per_minute_max: u32,
    /// SIZE announced, and 552 beyond.
    pub size_bytes_max: u64,
    pub no_ehlo: bool,
    pub no_pipelining: bool,
    pub no_chunking: bool,
    pub no_8bitmime: bool,
    pub no_smtputf8: bool,
    pub no_dsn: bool,
    pub no_size: bool,
    /// Speaks LMTP (RFC 2033): LHLO, and a reply for each recipient after the data.
    pub lmtp: bool,
    /// What a hostile host does, whatever the keys above say.
    pub script: Vec<Rule>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            connect: Connect::Accept,
            rtt_ms: 0,
            dot_delay_ms: 0,
            reply_delay_ms: 0,
            greeting_delay_ms: 0,
            ehlo_delay_ms: 0,
            mail_delay_ms: 0,
            rcpt_delay_ms: 0,
            data_delay_ms: 0,
            quit_delay_ms: 0,
            trickle_ms: 0,
            tls: None,
            tls_implicit: false,
            tls_required: false,
            requiretls: false,
            requiretls_only: false,
            auth: None,
            auth_tokens: None,
            auth_in_clear: false,
            at_greeting: None,
            at_ehlo: None,
            at_starttls: None,
            at_auth: None,
            at_mail: None,
            at_rcpt: None,
            at_data: None,
            at_body: None,
            at_dot: None,
            at_quit: None,
            body_bytes: 1024,
            dot_keeps: false,
            fault_share: 1.0,
            reject_share: 0.0,
            reject_users: Vec::new(),
            reject_reply: Action::Reply(550, "5.1.1 no such user here".to_owned()),
            full_share: 0.0,
            full_users: Vec::new(),
            greylist_ms: 0,
            greylist_by: GreylistBy::Pair,
            messages_per_connection_max: 0,
            connections_max: 0,
            recipients_per_transaction_max: 0,
            messages_per_minute_max: 0,
            size_bytes_max: 0,
            no_ehlo: false,
            no_pipelining: false,
            no_chunking: false,
            no_8bitmime: false,
            no_smtputf8: false,
            no_dsn: false,
            no_size: false,
            lmtp: false,
            script: Vec::new(),
        }
    }
}

/// What becomes of a recipient that a client tries for long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A copy is taken.
    Delivered,
    /// Refused with 5xx: the client must bounce.
    Refused,
    /// 4xx for ever: the client must keep trying until it gives up.
    Deferred,
    /// No usable answer from this host: the client goes on to the next host, or waits.
    Silent,
}

impl Behaviour {
    /// From a TOML table written inline, for tests: `Behaviour::parse("rtt_ms = 20\nat_dot = 'hang'")`.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Inline {
            keys: Behaviour,
        }
        // On a command line keys are parted by commas, as in an inline table.
        let behaviour = match (toml::from_str(text), toml::from_str::<Inline>(&format!("keys = {{ {text} }}"))) {
            (Ok(behaviour), _) | (Err(_), Ok(Inline { keys: behaviour })) => behaviour,
            (Err(error), Err(_)) => return Err(error.to_string()),
        };
        behaviour.check()?;
        Ok(behaviour)
    }

    /// Checks what the types do not: shares within 0..=1 and replies that are refusals where a refusal is meant.
    pub fn check(&self) -> Result<(), String> {
        for (name, share) in
            [("fault_share", self.fault_share), ("reject_share", self.reject_share), ("full_share", self.full_share)]
        {
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} = {share} is not within 0.0 to 1.0"));
            }
        }
        if !matches!(self.reject_reply, Action::Reply(400..=599, _)) {
            return Err("reject_reply must be a 4xx or 5xx reply".to_owned());
        }
        for (name, action) in self.stages() {
            if matches!(action, Some(Action::Reply(200..=399, _))) {
                return Err(format!("{name} must be hang, drop, reset, endless or a 4xx or 5xx reply"));
            }
        }
        if matches!(self.at_body, Some(Action::Reply(..) | Action::Endless)) {
            return Err("at_body must be hang, drop or reset".to_owned());
        }
        Ok(())
    }

    pub fn rtt(&self) -> Duration {
        Duration::from_millis(u64::from(self.rtt_ms))
    }

    fn stages(&self) -> [(&'static str, &Option<Action>); 10] {
        [
            ("at_greeting", &self.at_greeting),
            ("at_ehlo", &self.at_ehlo),
            ("at_starttls", &self.at_starttls),
            ("at_auth", &self.at_auth),
            ("at_mail", &self.at_mail),
            ("at_rcpt", &self.at_rcpt),
            ("at_data", &self.at_data),
            ("at_body", &self.at_body),
            ("at_dot", &self.at_dot),
            ("at_quit", &self.at_quit),
        ]
    }

    /// Whether the mailbox is refused for good here. `seed` is the site's.
    pub fn rejects(&self, seed: u64, address: &str) -> bool {
        listed(&self.reject_users, address) || share_hits(self.reject_share, seed ^ SALT_REJECT, address.as_bytes())
    }

    /// Whether the mailbox is full.
    pub fn mailbox_full(&self, seed: u64, address: &str) -> bool {
        listed(&self.full_users, address) || share_hits(self.full_share, seed ^ SALT_FULL, address.as_bytes())
    }

    /// What becomes of the recipient at this host, if this behaviour lasts and the client is patient. A fault whose
    /// `fault_share` is under one passes with time, as greylisting and the limits do.
    pub fn recipient_fate(&self, seed: u64, address: &str) -> Fate {
        if self.connect != Connect::Accept {
            return Fate::Silent;
        }
        if self.fault_share >= 1.0 {
            for (name, action) in self.stages() {
                match action {
                    None => {}
                    // Of these the client makes what it can.
                    Some(_) if matches!(name, "at_quit" | "at_starttls" | "at_auth") => {}
                    Some(Action::Reply(500..=599, _)) if name != "at_greeting" && name != "at_ehlo" => {
                        return Fate::Refused;
                    }
                    Some(Action::Reply(400..=420 | 422..=499, _)) => return Fate::Deferred,
                    Some(_) => return Fate::Silent,
                }
            }
        }
        if self.rejects(seed, address) {
            return if matches!(self.reject_reply, Action::Reply(500.., _)) { Fate::Refused } else { Fate::Deferred };
        }
        if self.mailbox_full(seed, address) { Fate::Deferred } else { Fate::Delivered }
    }
}

const SALT_REJECT: u64 = 0x7265_6a65_6374_0001;
const SALT_FULL: u64 = 0x6675_6c6c_0000_0002;

fn listed(users: &[String], address: &str) -> bool {
    let local = address.rsplit_once('@').map_or(address, |(local, _)| local);
    users.iter().any(|u| u.eq_ignore_ascii_case(local))
}

/// Whether `key` falls into the share: a pure function of its arguments. ASCII case is ignored.
pub fn share_hits(share: f64, seed: u64, key: &[u8]) -> bool {
    if share <= 0.0 {
        return false;
    }
    let hash = if key.iter().any(u8::is_ascii_uppercase) {
        xxh3_64_with_seed(&key.to_ascii_lowercase(), seed)
    } else {
        xxh3_64_with_seed(key, seed)
    };
    ((hash >> 11) as f64) < share * (1u64 << 53) as f64
}

/// A behaviour that holds for a while.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub from_us: u64,
    pub to_us: u64,
    pub behaviour: Arc<Behaviour>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parted_by_lines_or_commas() {
        let of_lines = Behaviour::parse("rtt_ms = 50\nno_chunking = true").expect("lines");
        assert_eq!(Behaviour::parse("rtt_ms = 50, no_chunking = true").expect("commas"), of_lines);
        assert!(of_lines != Behaviour::default() && Behaviour::parse("").expect("none") == Behaviour::default());
        assert!(Behaviour::parse("rtt_ms = 50, no_such = true").is_err());
    }

    #[test]
    fn actions_are_parsed_and_bad_ones_refused() {
        assert_eq!(Action::try_from("hang".to_owned()), Ok(Action::Hang));
        assert_eq!(
            Action::try_from("421 4.3.2 closing".to_owned()),
            Ok(Action::Reply(421, "4.3.2 closing".to_owned()))
        );
        for bad in ["", "hung", "99 x", "600 x", "45", "450x", "450 a\r\nb"] {
            assert!(Action::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn behaviours_are_checked() {
        assert!(Behaviour::parse("rtt_ms = 5\nat_dot = '451 4.3.0 later'").is_ok());
        for bad in ["rtt = 5", "reject_share = 2.0", "at_mail = '250 ok'", "at_body = '451 x'", "reject_reply = 'hang'"]
        {
            assert!(Behaviour::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn share_is_seeded_even_and_ignores_case() {
        let hit = |seed, n: u32| share_hits(0.1, seed, format!("user{n}@site.example").as_bytes());
        let count = (0..10_000).filter(|&n| hit(1, n)).count();
        assert!((900..1100).contains(&count), "{count}");
        assert!((0..1000).any(|n| hit(1, n) != hit(2, n)));
        assert_eq!(share_hits(0.5, 7, b"Anna@X"), share_hits(0.5, 7, b"anna@x"));
        assert!(share_hits(1.0, 3, b"all") && !share_hits(0.0, 3, b"none"));
    }

    #[test]
    fn fate_follows_the_behaviour() {
        let fate = |text: &str| Behaviour::parse(text).expect("valid").recipient_fate(1, "bob@x.example");
        assert_eq!(fate(""), Fate::Delivered);
        assert_eq!(fate("connect = 'refuse'"), Fate::Silent);
        assert_eq!(fate("at_dot = '554 no'"), Fate::Refused);
        assert_eq!(fate("at_dot = '451 no'"), Fate::Deferred);
        assert_eq!(fate("at_dot = '451 no'\nfault_share = 0.5"), Fate::Delivered);
        assert_eq!(fate("at_greeting = 'hang'"), Fate::Silent);
        assert_eq!(fate("reject_users = ['BOB']"), Fate::Refused);
        assert_eq!(fate("full_share = 1.0"), Fate::Deferred);
        assert_eq!(fate("greylist_ms = 1000"), Fate::Delivered);
    }
}
