//! MAIL and RCPT of a sink's session: extensions, limits, and which recipients are accepted.

use super::command::{Mail, Rcpt};
use super::session::Session;
use crate::behaviour::Action;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Session {
    /// Parameters that the host did not offer.
    pub(super) fn unoffered(&self, mail: &Mail<'_>) -> Option<&'static str> {
        let b = &self.behaviour;
        let all = !self.extended;
        if mail.size.is_some() && (all || b.no_size) {
            Some("SIZE unasked")
        } else if mail.body && (all || b.no_8bitmime) {
            Some("BODY unasked")
        } else if mail.smtputf8 && (all || b.no_smtputf8) {
            Some("SMTPUTF8 unasked")
        } else if mail.dsn && (all || b.no_dsn) {
            Some("RET or ENVID unasked")
        } else if mail.requiretls && !self.offers_requiretls() {
            Some("REQUIRETLS unasked")
        } else {
            None
        }
    }

    pub(super) fn refuse_mail(&mut self, code: u16, text: &str) {
        self.count_refusal(code);
        self.reply(code, text);
        if code == 421 {
            self.close();
        }
    }

    pub(super) fn count_refusal(&self, code: u16) {
        let counters = &self.recorder.counters;
        let counter = if code < 500 { &counters.mail_4xx } else { &counters.mail_5xx };
        counter.fetch_add(1, Relaxed);
        self.recorder.nudge();
    }

    pub(super) fn mail(&mut self, mail: &Mail<'_>, line: &[u8], now_us: u64) {
        if !self.greeted || self.tx.open {
            self.violation(if self.tx.open { "nested MAIL" } else { "MAIL before EHLO" }, line);
            self.reply(503, "5.5.1 bad sequence");
            return;
        }
        if self.wants_more_protection() {
            self.refuse_mail(530, "5.7.0 not without TLS and AUTH");
            return;
        }
        if self.behaviour.requiretls_only && !mail.requiretls {
            self.refuse_mail(550, "5.7.1 not without REQUIRETLS");
            return;
        }
        if let Some(breach) = self.unoffered(mail) {
            self.violation(breach, line);
            self.reply(555, "5.5.4 parameter not known");
            return;
        }
        self.behaviour = Arc::clone(self.host.schedule.at(now_us));
        self.reset();
        self.transactions += 1;
        self.tx.tried = true;
        self.tx.faulty = self.fault_strikes(self.transactions);
        let most = self.behaviour.messages_per_connection_max;
        if most > 0 && self.messages >= most {
            return self.refuse_mail(421, "4.7.0 enough messages for one connection");
        }
        if let Some(Action::Reply(code, _)) = &self.behaviour.at_mail
            && self.tx.faulty
        {
            self.count_refusal(*code);
        }
        if self.strikes(|b| &b.at_mail) {
            return;
        }
        if !self.host.site.rate_passes(&self.behaviour, now_us) {
            return self.refuse_mail(450, "4.7.1 too many messages, slow down");
        }
        let size_max = self.behaviour.size_bytes_max;
        if size_max > 0 && mail.size.is_some_and(|size| size > size_max) {
            return self.refuse_mail(552, "5.3.4 message too large");
        }
        self.tx.open = true;
        self.tx.sender.clear();
        self.tx.sender.push_str(mail.sender);
        self.tx.smtputf8 = mail.smtputf8;
        self.tx.eight_bit = mail.eight_bit;
        self.tx.size = mail.size;
        self.reply(250, "2.1.0 ok");
    }

    pub(super) fn rcpt(&mut self, rcpt: &Rcpt<'_>, line: &[u8], now_us: u64) {
        if !self.tx.open {
            if !self.tx.tried {
                self.violation("RCPT without MAIL", line);
            }
            return self.reply(503, "5.5.1 no MAIL before");
        }
        if rcpt.dsn && (!self.extended || self.behaviour.no_dsn) {
            self.violation("NOTIFY or ORCPT unasked", line);
            return self.reply(555, "5.5.4 parameter not known");
        }
        if !rcpt.recipient.is_ascii() && !self.tx.smtputf8 {
            self.violation("non-ASCII recipient without SMTPUTF8", line);
            return self.reply(553, "5.6.7 non-ASCII address");
        }
        if let Some(Action::Reply(code, _)) = &self.behaviour.at_rcpt
            && self.tx.faulty
        {
            self.count_rcpt(*code);
        }
        if self.strikes(|b| &b.at_rcpt) {
            return;
        }
        let domain = rcpt.recipient.rsplit_once('@').map_or("", |(_, domain)| domain);
        if !self.host.site.serves(domain) {
            self.violation("recipient of another site", line);
            return self.refuse_rcpt(550, "5.7.1 not served here");
        }
        let b = Arc::clone(&self.behaviour);
        let most = u64::from(b.recipients_per_transaction_max);
        if most > 0 && self.tx.rcpt_count >= most {
            return self.refuse_rcpt(452, "4.5.3 too many recipients");
        }
        let seed = self.host.site.seed;
        if b.rejects(seed, rcpt.recipient)
            && let Action::Reply(code, text) = &b.reject_reply
        {
            return self.refuse_rcpt(*code, text);
        }
        if b.mailbox_full(seed, rcpt.recipient) {
            return self.refuse_rcpt(452, "4.2.2 mailbox full");
        }
        if !self.host.site.greylist_passes(&b, &self.tx.sender, rcpt.recipient, now_us) {
            return self.refuse_rcpt(451, "4.7.1 greylisted, try again later");
        }
        self.tx.rcpts.push_str(rcpt.recipient);
        self.tx.rcpts.push('\n');
        self.tx.rcpt_count += 1;
        self.reply(250, "2.1.5 ok");
    }

    pub(super) fn count_rcpt(&self, code: u16) {
        let counters = &self.recorder.counters;
        let counter = if code < 500 { &counters.rcpt_4xx } else { &counters.rcpt_5xx };
        counter.fetch_add(1, Relaxed);
        self.recorder.nudge();
    }

    pub(super) fn refuse_rcpt(&mut self, code: u16, text: &str) {
        self.count_rcpt(code);
        self.reply(code, text);
        if code == 421 {
            self.close();
        }
    }
}
