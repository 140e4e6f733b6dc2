//! STARTTLS and AUTH of a sink's session.

use base64ct::{Base64, Encoding as _};

use super::session::{Effect, Session, State};
use crate::tls::Tls;

impl Session {
    pub(super) fn offers_starttls(&self) -> bool {
        self.behaviour.tls.is_some() && !self.secured && !self.behaviour.tls_implicit
    }

    pub(super) fn offers_requiretls(&self) -> bool {
        self.behaviour.requiretls && self.secured
    }

    pub(super) fn offers_auth(&self) -> bool {
        self.wants_auth() && (self.secured || self.behaviour.auth_in_clear)
    }

    pub(super) fn auth_offer(&self) -> &'static str {
        if self.behaviour.auth_tokens.is_some() { "AUTH XOAUTH2 OAUTHBEARER" } else { "AUTH PLAIN LOGIN" }
    }

    fn wants_auth(&self) -> bool {
        self.behaviour.auth.is_some() || self.behaviour.auth_tokens.is_some()
    }

    /// Whether mail is not taken yet.
    pub(super) fn wants_more_protection(&self) -> bool {
        let behaviour = &self.behaviour;
        (behaviour.tls_required && !self.secured) || (self.wants_auth() && !self.authenticated)
    }

    pub(super) fn starttls(&mut self) {
        if self.strikes(|b| &b.at_starttls) {
            return;
        }
        let Some(kind) = self.behaviour.tls else { return };
        self.reply(220, "2.0.0 ready");
        if kind == Tls::Inject {
            self.out.extend_from_slice(b"250-injected\r\n250 SIZE\r\n");
        }
        self.effect = Some(Effect::Secure(kind));
    }

    pub(super) fn auth(&mut self, mechanism: &str, initial: Option<&str>, line: &[u8]) {
        if self.authenticated || self.tx.open {
            self.violation("AUTH twice or in a transaction", line);
            return self.reply(503, "5.5.1 not now");
        }
        if self.strikes(|b| &b.at_auth) {
            return;
        }
        self.responses.clear();
        self.mechanism = mechanism.to_ascii_uppercase();
        match (self.mechanism.as_str(), initial) {
            ("PLAIN" | "XOAUTH2" | "OAUTHBEARER", Some(initial)) => self.response(initial.as_bytes()),
            ("PLAIN" | "XOAUTH2" | "OAUTHBEARER", None) => self.ask(""),
            ("LOGIN", None) => self.ask("VXNlcm5hbWU6"),
            _ => self.reply(504, "5.5.4 no such mechanism"),
        }
    }

    fn ask(&mut self, challenge: &str) {
        self.reply(334, challenge);
        self.state = State::Response;
    }

    /// A line of the client's side of AUTH.
    pub(super) fn response(&mut self, line: &[u8]) {
        self.state = State::Command;
        let text = std::str::from_utf8(line).unwrap_or_default().trim_end();
        if text == "*" {
            return self.reply(501, "5.0.0 cancelled");
        }
        let decoded = Base64::decode_vec(text).ok().and_then(|octets| String::from_utf8(octets).ok());
        let Some(decoded) = decoded else { return self.reply(501, "5.5.2 not base64") };
        self.responses.push(decoded);
        if self.mechanism != "PLAIN" && self.mechanism != "LOGIN" {
            return self.token();
        }
        if self.mechanism == "LOGIN" && self.responses.len() == 1 {
            return self.ask("UGFzc3dvcmQ6");
        }
        let given = match self.responses.as_slice() {
            [user, password] => format!("{user}:{password}"),
            [plain] => plain.trim_start_matches('\0').replacen('\0', ":", 1),
            _ => String::new(),
        };
        if self.behaviour.auth.as_deref() == Some(given.as_str()) {
            self.authenticated = true;
            self.reply(235, "2.7.0 welcome");
        } else {
            self.reply(535, "5.7.8 wrong name or password");
        }
    }

    /// A token that is refused gets the reason as a challenge, and its end after the response to that (RFC 7628 section
    /// 3.2.3).
    fn token(&mut self) {
        let [message] = self.responses.as_slice() else { return self.reply(535, "5.7.8 token not accepted") };
        let user = message.split('\x01').next().unwrap_or_default();
        let user = user.strip_prefix("user=").or_else(|| user.strip_prefix("n,a=")?.strip_suffix(','));
        let token = message.split('\x01').find_map(|part| part.strip_prefix("auth=Bearer "));
        let given = user.zip(token).map(|(user, token)| format!("{user}:{token}"));
        let file = self.behaviour.auth_tokens.as_deref();
        let good = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        if given.is_some_and(|given| good.lines().any(|line| line == given)) {
            self.authenticated = true;
            self.reply(235, "2.7.0 welcome");
        } else {
            self.ask(&Base64::encode_string(br#"{"status":"401","schemes":"bearer","scope":"https://mail.example/"}"#));
        }
    }
}
