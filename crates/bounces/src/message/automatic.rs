//! Signs that a message is a bounce, a delay notice or an automatic answer.
//!
//! Bounces without a delivery status have no field that says so, and some servers mark theirs `auto-replied`. Each sign
//! has a weight; a marked answer needs more of them.

use std::sync::LazyLock;

use regex::Regex;

use super::collect::Collector;
use super::region;

/// Weight from which a message is a bounce.
const BOUNCE_WEIGHT: u32 = 2;
/// The same for a message that is marked as an automatic answer.
const MARKED_BOUNCE_WEIGHT: u32 = 4;

pub(super) struct MessageSigns {
    weight: u32,
    pub is_auto_reply: bool,
    /// Delivery is still being tried.
    pub is_delay: bool,
}

impl MessageSigns {
    pub fn is_bounce(&self) -> bool {
        self.weight >= if self.is_auto_reply { MARKED_BOUNCE_WEIGHT } else { BOUNCE_WEIGHT }
    }
}

static DAEMON: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?i)(mailer[-_.]?daemon|postmaster|mail[-_. ]?daemon|mdaemon|mail delivery|delivery (sub)?system|mail administrator|system administrator|mail\.delivery|mailerdaemon|mail system|microsoftexchange[0-9a-f]+)",
    )
    .expect("the pattern is constant")
});

static SUBJECT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)undeliver|undelivr|un-deliver|non-?deliver|delivery\ (failure|failed|status|problem|report|error|notification|warning|has\ failed)|
        returned\ (mail|e-?mail|message|to\ sender)|mail\ (delivery|failure|system\ error|could\ not|not\ delivered)|failure\ (notice|delivery|notification)|failed\ (mail|delivery|message)|
        could\ not\ be\ delivered|not\ (be\ )?delivered|message\ (delayed|not\ delivered|status|undeliver)|delayed\ mail|user\ unknown|unknown\ user|nondeliverable|message\ .{0,40}delayed|
        unzustellbar|zustellung|nicht\ zugestellt|retourn|non\ remis|no\ se\ (pudo|puede)\ entregar|entrega|не\ доставлен|недостав|consegna|mancato\ recapito|bounce|warning:\ .{0,60}(delay|deliver)|rejected|投递|退信|配信|returned",
    )
    .expect("the pattern is constant")
});

static AUTO_SUBJECT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^\W*(auto(matic|mated|matische)?[-_\ ]?(reply|response|respon|answer|antwort)|out\ of\ (the\ )?office|ooo:|on\ vacation|vacation|away\ from|abwesen|automatische\ antwort|
        r[eé]ponse\ automatique|absence|respuesta\ autom|risposta\ automatica|resposta\ autom|автоответ|自動返信|自动回复|i\ am\ (away|out)|afwezig)",
    )
    .expect("the pattern is constant")
});

static DELAY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)not\ yet\ been\ delivered|still\ being\ (re)?tried|will\ (be\ retried|continue\ to\ (try|attempt|be)|keep\ trying|try\ again|retry)|warning\ (message\ )?only|has\ been\ (delayed|postponed)|advisory|
        delivery\ attempts\ will\ continue|do\ not\ need\ to\ resend|could\ not\ be\ delivered\ for|message\ delayed|delayed\ (mail|[0-9])|just\ a\ warning|not\ been\ delivered\ yet|noch\ nicht\ zugestellt|
        temporarily\ (unable|undeliverable|delayed)|is\ (still\ )?(being\ )?delayed|delivery\ (of\ .{0,80}\ )?(is|was|has\ been)\ delayed|status\ notification\ \(delay",
    )
    .expect("the pattern is constant")
});

pub(super) fn signs(collected: &Collector) -> MessageSigns {
    let header = &collected.header;
    let is_marked = |text: &str, words: &[&str]| words.iter().any(|word| text.to_ascii_lowercase().starts_with(word));
    let is_auto_reply = is_marked(&header.auto_submitted, &["auto-replied", "auto_replied", "auto-notified"])
        || header.has_auto_reply_field
        || is_marked(&header.precedence, &["auto_reply", "auto-reply", "autoreply", "vacation"])
        || AUTO_SUBJECT.is_match(&header.subject);
    let is_null_path = header.return_path.as_deref().is_some_and(|path| matches!(path.trim(), "<>" | ""));
    let region = region::before_original(&collected.text);
    let mut weight = 0;
    weight += if DAEMON.is_match(&header.from) { 2 } else { 0 };
    weight += if SUBJECT.is_match(&header.subject) { 2 } else { 0 };
    weight += u32::from(is_null_path);
    weight += u32::from(region::INTRODUCTION.is_match(&region));
    weight += if header.failed_recipients.is_empty() { 0 } else { 4 };
    weight += if header.content_type.to_ascii_lowercase().contains("report-type=delivery-status") { 4 } else { 0 };
    let is_delay = DELAY.is_match(&header.subject) || DELAY.is_match(&region);
    MessageSigns { weight, is_auto_reply, is_delay }
}
