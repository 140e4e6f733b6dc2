//! `[[milters]]`: external filters, consulted in the order of the file.

use std::net::SocketAddr;

use stentor_milter::protocol::{MilterSettings, OnFailure, Scope, ServiceAddress};

use super::raw::Section;

/// Maximum milters.
const MILTERS_MAX: usize = 20;
/// Upper limit of the timeout: clients wait five minutes for replies before the data and ten after it (RFC 5321
/// section 4.5.3.2).
const COMMAND_TIMEOUT_S_MAX: f64 = 240.0;
const CONTENT_TIMEOUT_S_MAX: f64 = 540.0;
/// Longest path of a Unix socket (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;
const NAME_BYTES_MAX: usize = 40;
const ACTIONS: [(&str, OnFailure); 3] =
    [("tempfail", OnFailure::Tempfail), ("accept", OnFailure::Accept), ("reject", OnFailure::Reject)];

/// Reads `[[milters]]`; `listening` are our listening addresses for mail.
pub(super) fn read(top: &Section<'_>, hostname: &str, listening: &[SocketAddr]) -> Vec<MilterSettings> {
    let sections = top.tables("milters");
    if let Some(section) = sections.get(MILTERS_MAX) {
        section.context.error(section.span.clone(), format!("more than {MILTERS_MAX} milters"));
    }
    let mut milters: Vec<MilterSettings> = Vec::new();
    for section in sections.into_iter().take(MILTERS_MAX) {
        if let Some(milter) = milter(section, hostname, listening, &milters) {
            milters.push(milter);
        }
    }
    milters
}

fn milter(
    section: Section<'_>,
    hostname: &str,
    listening: &[SocketAddr],
    others: &[MilterSettings],
) -> Option<MilterSettings> {
    let name = name(&section, others);
    let place = place(&section);
    let default = section.choice("default_action", OnFailure::Tempfail, &ACTIONS);
    let action = |key| section.maybe_choice(key, &ACTIONS).unwrap_or(default);
    let (on_unreachable, on_timeout, on_error) =
        (action("unreachable_action"), action("timeout_action"), action("error_action"));
    let milter = MilterSettings {
        name: name.unwrap_or_default(),
        place: place.clone().unwrap_or(ServiceAddress::Unix("/".into())),
        scope: Scope {
            smtp: section.flag("smtp", true),
            listeners: listeners(&section, listening),
            local: section.flag("local", false),
        },
        on_unreachable,
        on_timeout,
        on_error,
        connect_timeout_ms: section.seconds("connect_timeout_s", 10, 0.1..=60.0),
        command_timeout_ms: section.seconds("command_timeout_s", 30, 0.1..=COMMAND_TIMEOUT_S_MAX),
        content_timeout_ms: section.seconds("content_timeout_s", 300, 0.1..=CONTENT_TIMEOUT_S_MAX),
        reuse: section.flag("reuse", false),
        pipelining: section.flag("pipelining", true),
        daemon_name: section.text("daemon_name").map_or_else(|| hostname.to_owned(), |text| text.value.to_owned()),
    };
    if !milter.scope.smtp && !milter.scope.local {
        section.context.warn(section.span.clone(), "this milter gets no mail: `smtp` and `local` are false");
    }
    section.finish();
    (place.is_some() && !milter.name.is_empty()).then_some(milter)
}

/// Reads the name for logs and metrics, a single word.
fn name(section: &Section<'_>, others: &[MilterSettings]) -> Option<String> {
    let text = section.required("name", "opendkim")?;
    let is_word = |octet: u8| octet.is_ascii_alphanumeric() || b"-_.".contains(&octet);
    let wrong = if text.value.is_empty() || !text.value.bytes().all(is_word) || text.value.len() > NAME_BYTES_MAX {
        format!("{:?} is not a valid name: use at most {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`", text.value)
    } else if others.iter().any(|other| other.name == text.value) {
        format!("two milters have the name {:?}", text.value)
    } else {
        return Some(text.value.to_owned());
    };
    section.context.error(text.span, wrong);
    None
}

fn place(section: &Section<'_>) -> Option<ServiceAddress> {
    let text = section.required("address", "unix:/run/opendkim/opendkim.sock")?;
    match ServiceAddress::parse(text.value) {
        Some(ServiceAddress::Unix(path)) if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX => {
            let message = format!("a path of a Unix socket has at most {SOCKET_PATH_BYTES_MAX} octets");
            section.context.error(text.span, message);
            None
        }
        None => {
            let message =
                format!("{:?} is not a valid milter address; write \"inet:HOST:PORT\" or \"unix:/PATH\"", text.value);
            section.context.error(text.span, message);
            None
        }
        place => place,
    }
}

/// Listening addresses whose mail the milter sees; empty: all.
fn listeners(section: &Section<'_>, listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut listeners = Vec::new();
    for text in section.some_texts("listeners").unwrap_or_default() {
        match text.value.parse::<SocketAddr>() {
            Ok(address) if listening.contains(&address) => listeners.push(address),
            _ => {
                let all: Vec<String> = listening.iter().map(|address| format!("\"{address}\"")).collect();
                let message = format!(
                    "{:?} is not one of `smtp`, `smtps` and `submission` of [listen]: {}",
                    text.value,
                    all.join(", ")
                );
                section.context.error(text.span, message);
            }
        }
    }
    listeners
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_text;

    #[test]
    fn listeners_are_those_of_all_mail() {
        let text = |listener: &str| {
            format!(
                "[listen]\nsmtp = \"127.0.0.1:25\"\nsmtps = \"127.0.0.1:465\"\nsubmission = \"127.0.0.1:587\"\n[[milters]]\n\
                 name = \"a\"\naddress = \"unix:/a\"\nlisteners = \"127.0.0.1:{listener}\"\n"
            )
        };
        for port in ["25", "465", "587"] {
            let milters = check_text(Path::new("stentor.toml"), &text(port)).unwrap().milters;
            assert_eq!(milters[0].scope.listeners, [format!("127.0.0.1:{port}").parse().unwrap()]);
        }
        let found = check_text(Path::new("stentor.toml"), &text("26")).unwrap_err();
        let expected = "\"127.0.0.1:26\" is not one of `smtp`, `smtps` and `submission` of [listen]: \"127.0.0.1:25\", \
                        \"127.0.0.1:465\", \"127.0.0.1:587\"";
        assert!(found.iter().any(|found| found.message == expected), "{found:?}");
    }
}
