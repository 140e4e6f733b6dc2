//! Settings that the server publishes in the submission folder: its name, limits, and who may send as whom.
//!
//! Promise: the program decides as the server will, whether or not one is running; the file contains no secrets. The
//! server rewrites it at each start and reload, and decides again by its own configuration. It is text, with a
//! keyword and its value on each line; unknown keywords are ignored, so that an older program can read a newer file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const FIRST_LINE: &str = "stentor-submission 1";

/// Published settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub hostname: String,
    /// Domain of names without one.
    pub origin: String,
    pub message_bytes_max: u64,
    pub recipients_max: u32,
    /// Path of the server's control socket.
    pub control: Option<String>,
    pub rights: Rights,
}

/// Permitted senders of users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Whether other users' senders are refused; otherwise the header names the real user.
    pub strict: bool,
    /// Login names or user IDs that may send as anyone.
    pub trusted: Vec<String>,
    /// Addresses, or `@domain`, by login name.
    pub senders: BTreeMap<String, Vec<String>>,
}

/// A local user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalUser {
    pub uid: u32,
    /// Login name; empty if unknown.
    pub login: String,
}

impl LocalUser {
    /// Formats the user as `uid 1000 (ann)`.
    pub fn shown(&self) -> String {
        let name: String = self.login.chars().filter(|c| c.is_ascii_graphic() && !"()\\".contains(*c)).collect();
        if name.is_empty() { format!("uid {}", self.uid) } else { format!("uid {} ({name})", self.uid) }
    }

    /// The user's own address in a domain: by login name if it is valid in an address unchanged, otherwise by number.
    pub fn address(&self, domain: &str) -> String {
        let is_atom = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_+$".contains(&byte))
        };
        // Such a name is another user's number.
        let is_number =
            self.login.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case("uid")) && is_number(&self.login[3..]);
        if self.login.len() <= 64 && !is_number && self.login.split('.').all(is_atom) {
            format!("{}@{domain}", self.login)
        } else {
            format!("uid{}@{domain}", self.uid)
        }
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

impl Rights {
    /// Whether the user may use this sender without a note in the header: the null path, the own address in any of
    /// `domains`, or one in the table; root and trusted users may send as anyone.
    pub fn allow(&self, user: &LocalUser, sender: &str, domains: &[&str]) -> bool {
        let uid = user.uid.to_string();
        // A number is always a user ID, even if a login has that name.
        let login = Some(user.login.as_str()).filter(|login| !is_number(login)).unwrap_or_default();
        let is_user = |name: &String| if is_number(name) { *name == uid } else { *name == login };
        if sender.is_empty() || user.uid == 0 || self.trusted.iter().any(is_user) {
            return true;
        }
        if domains.iter().any(|domain| sender.eq_ignore_ascii_case(&user.address(domain))) {
            return true;
        }
        let domain = sender.rfind('@').map_or("", |at| &sender[at..]);
        let own = self.senders.get(login).or_else(|| self.senders.get(&uid));
        own.into_iter().flatten().any(|own| {
            let wanted = if own.starts_with('@') { domain } else { sender };
            own.eq_ignore_ascii_case(wanted)
        })
    }
}

impl Settings {
    /// Settings if the server has published none.
    pub fn unknown(hostname: String) -> Settings {
        Settings {
            origin: hostname.clone(),
            hostname,
            message_bytes_max: 50 * 1024 * 1024,
            recipients_max: 10_000,
            control: None,
            rights: Rights::default(),
        }
    }

    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        let Settings { hostname, origin, message_bytes_max, recipients_max, control, rights } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "hostname {hostname}\nmessage-bytes {message_bytes_max}\nrecipients {recipients_max}");
        if origin != hostname {
            let _ = writeln!(text, "origin {origin}");
        }
        if let Some(control) = control.as_ref().filter(|path| !path.contains(char::is_control)) {
            let _ = writeln!(text, "control {control}");
        }
        if rights.strict {
            text.push_str("strict yes\n");
        }
        for name in &rights.trusted {
            let _ = writeln!(text, "trusted {name}");
        }
        for (login, addresses) in &rights.senders {
            for address in addresses {
                let _ = writeln!(text, "sender {login} {address}");
            }
        }
        text
    }

    /// Parses a file; `None` if it has another format.
    pub fn parse(text: &str) -> Option<Settings> {
        if text.contains(|c: char| c.is_control() && c != '\n') {
            return None;
        }
        let mut lines = text.lines();
        lines.next().filter(|line| *line == FIRST_LINE)?;
        let mut settings = Settings::unknown(String::new());
        for line in lines {
            let (word, value) = line.split_once(' ')?;
            match word {
                "hostname" => value.clone_into(&mut settings.hostname),
                "origin" => value.clone_into(&mut settings.origin),
                "message-bytes" => settings.message_bytes_max = value.parse().ok()?,
                "recipients" => settings.recipients_max = value.parse().ok()?,
                "control" => settings.control = Some(value.to_owned()),
                "strict" => settings.rights.strict = value == "yes",
                "trusted" => settings.rights.trusted.push(value.to_owned()),
                "sender" => {
                    let (login, address) = value.split_once(' ')?;
                    settings.rights.senders.entry(login.to_owned()).or_default().push(address.to_owned());
                }
                _ => {}
            }
        }
        if settings.origin.is_empty() {
            settings.origin.clone_from(&settings.hostname);
        }
        (!settings.hostname.is_empty()).then_some(settings)
    }
}

/// The login name of a user ID, in the text of passwd(5).
pub fn login_of(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights() -> Rights {
        let senders = [("ann".to_owned(), vec!["Ann@shop.example".to_owned(), "@lists.example".to_owned()])];
        Rights { strict: false, trusted: vec!["www-data".to_owned(), "1005".to_owned()], senders: senders.into() }
    }

    #[test]
    fn users_send_as_themselves_and_as_the_table_says() {
        let ann = LocalUser { uid: 1000, login: "ann".to_owned() };
        let allow = |user: &LocalUser, sender: &str| rights().allow(user, sender, &["mx.example", "origin.example"]);
        for sender in
            ["", "ann@mx.example", "ann@origin.example", "ANN@mx.example", "ann@shop.example", "any@lists.example"]
        {
            assert!(allow(&ann, sender), "{sender}");
        }
        for sender in
            ["ann", "bob@mx.example", "ann@other.example", "x@shop.example", "a@b@shop.example", "@lists.example.org"]
        {
            assert!(!allow(&ann, sender), "{sender}");
        }
        let bob = LocalUser { uid: 1001, login: "bob".to_owned() };
        assert!(!allow(&bob, "ann@shop.example"));
        for (uid, login) in [(0, "root"), (0, ""), (33, "www-data"), (1005, "")] {
            assert!(allow(&LocalUser { uid, login: login.to_owned() }, "any@where.example"), "{uid} {login}");
        }
        // A login that looks like a user ID does not get that user's rights.
        let numbered: Vec<(String, Vec<String>)> = vec![("1000".to_owned(), vec!["ann@shop.example".to_owned()])];
        let rights =
            Rights { strict: false, trusted: vec!["1005".to_owned()], senders: numbered.into_iter().collect() };
        for (uid, login, sender, is_allowed) in [
            (1000, "ann", "ann@shop.example", true),
            (5, "1000", "ann@shop.example", false),
            (5, "01000", "ann@shop.example", false),
            (1005, "bob", "any@where.example", true),
            (5, "1005", "any@where.example", false),
            (1000, "1000", "ann@shop.example", true),
        ] {
            let user = LocalUser { uid, login: login.to_owned() };
            assert_eq!(rights.allow(&user, sender, &["mx.example"]), is_allowed, "{uid} {login} {sender}");
        }
        let posing = LocalUser { uid: 5, login: "uid4711".to_owned() };
        assert!(!allow(&posing, "uid4711@mx.example") && allow(&posing, "uid5@mx.example"));
        let nameless = LocalUser { uid: 4711, login: String::new() };
        assert!(allow(&nameless, "uid4711@mx.example") && !allow(&nameless, "@mx.example"));
        let odd = LocalUser { uid: 5, login: "EXAMPLE\\ann".to_owned() };
        assert_eq!((ann.address("x").as_str(), odd.address("x").as_str()), ("ann@x", "uid5@x"));
        assert_eq!((ann.shown().as_str(), nameless.shown().as_str()), ("uid 1000 (ann)", "uid 4711"));
    }

    #[test]
    fn settings_are_read_as_written() {
        let settings = Settings {
            hostname: "mx.example".to_owned(),
            origin: "example".to_owned(),
            message_bytes_max: 1,
            recipients_max: 2,
            control: Some("/run/a b/control.sock".to_owned()),
            rights: Rights { strict: true, ..rights() },
        };
        assert_eq!(Settings::parse(&settings.to_text()), Some(settings.clone()));
        assert_eq!(Settings::parse(&(settings.to_text() + "later word\n")), Some(settings.clone()));
        let plain = Settings::parse("stentor-submission 1\nhostname x\n").map(|settings| settings.origin);
        assert_eq!(plain.as_deref(), Some("x"));
        for bad in [
            "",
            "stentor-submission 2\nhostname x\n",
            "stentor-submission 1\n",
            "stentor-submission 1\nhostname x\nrecipients y\n",
        ] {
            assert_eq!(Settings::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn login_names_come_from_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nann:x:1000:1000::/home/ann:\n";
        assert_eq!((login_of(table, 0), login_of(table, 1000)), (Some("root"), Some("ann")));
        assert_eq!((login_of(table, 7), login_of(table, 8)), (None, None));
    }
}
