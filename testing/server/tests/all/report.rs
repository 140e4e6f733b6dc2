//! A DSN (RFC 3464), parsed as a list manager's program would.

use std::collections::BTreeMap;

pub type Fields = BTreeMap<String, String>;

#[derive(Debug)]
pub struct Report {
    pub text: String,
    pub header: Fields,
    /// Of the message; field names in lower case.
    pub message: Fields,
    /// Of each recipient.
    pub recipients: Vec<Fields>,
    /// The last part, with its own header section.
    pub original: String,
}

impl Report {
    #[track_caller]
    pub fn parse(octets: &[u8]) -> Report {
        assert!(!String::from_utf8_lossy(octets).replace("\r\n", "").contains(['\r', '\n']), "bare CR or LF");
        let text = String::from_utf8_lossy(octets).replace("\r\n", "\n");
        let (head, body) = text.split_once("\n\n").expect("a header section");
        let header = fields(head);
        let kind = &header["content-type"];
        assert!(kind.starts_with("multipart/report; report-type="), "{kind}");
        let boundary = kind.split("boundary=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a boundary");
        let parts: Vec<&str> = body.split(&format!("\n--{boundary}")).collect();
        assert_eq!(parts.len(), 5, "preamble, three parts and the end: {text}");
        assert!(parts[4].starts_with("--"), "{text}");
        let (kind, status) = parts[2].split_once("\n\n").expect("a part");
        assert!(kind.contains("delivery-status"), "{kind}");
        let mut groups = status.trim_end().split("\n\n").map(fields);
        let message = groups.next().expect("the message's fields");
        let recipients = groups.collect();
        let original = parts[3].to_owned();
        Report { text, header, message, recipients, original }
    }

    /// The fields about one recipient, given up or not. Octets over 127 are there as RFC 6533 section 3 has them.
    #[track_caller]
    pub fn about(&self, address: &str) -> &Fields {
        let escaped = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\x{{{:X}}}", u32::from(c)) };
        let ending = format!("; {}", address.chars().map(escaped).collect::<String>());
        let is_wanted = |group: &&Fields| group["final-recipient"].ends_with(&ending);
        self.recipients.iter().find(is_wanted).unwrap_or_else(|| panic!("{address} is not in {}", self.text))
    }

    /// Asserts that it tells of this one recipient, with this status.
    #[track_caller]
    pub fn assert_failed(&self, address: &str, status: &str) {
        assert_eq!(self.recipients.len(), 1, "{}", self.text);
        let about = self.about(address);
        assert_eq!((about["action"].as_str(), about["status"].as_str()), ("failed", status), "{}", self.text);
    }
}

/// Header fields, unfolded.
pub fn fields(text: &str) -> Fields {
    let unfolded = text.trim().replace("\n ", " ").replace("\n\t", " ");
    let lines = unfolded.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect()
}
