//! The session's own replies, in one table that shows each code next to its enhanced code.

use stentor_mail::reply::{Enhanced, OwnLimit, Reply};

pub(super) const OK: Reply = Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok");
pub(super) const BYE: Reply = Reply::fixed(221, Enhanced::new(2, 0, 0), "Bye");
pub(super) const HELP: Reply = Reply::fixed(214, Enhanced::new(2, 0, 0), "See RFC 5321");
pub(super) const VRFY: Reply = Reply::fixed(252, Enhanced::new(2, 5, 0), "Cannot verify the address; try sending mail");
pub(super) const GO_AHEAD: Reply = Reply::plain(354, "End data with <CR><LF>.<CR><LF>");

pub(super) const TIMED_OUT: Reply = Reply::fixed(421, Enhanced::new(4, 4, 2), "Timeout, closing");
pub(super) const TOO_MANY_ERRORS: Reply =
    Reply::of_limit(OwnLimit::Errors, 421, Enhanced::new(4, 7, 0), "Too many errors, closing");
pub(super) const TOO_MANY_COMMANDS: Reply =
    Reply::of_limit(OwnLimit::Errors, 421, Enhanced::new(4, 7, 0), "Too many commands without a message, closing");
pub(super) const TOO_MANY_RECIPIENTS: Reply =
    Reply::of_limit(OwnLimit::Recipients, 452, Enhanced::new(4, 5, 3), "Too many recipients");

pub(super) const LINE_TOO_LONG: Reply = Reply::fixed(500, Enhanced::new(5, 5, 2), "Line too long");
pub(super) const LINE_END: Reply = Reply::fixed(500, Enhanced::new(5, 5, 2), "Lines must end with <CR><LF>");
pub(super) const UNKNOWN: Reply = Reply::fixed(500, Enhanced::new(5, 5, 2), "Unknown command");
pub(super) const NOT_HTTP: Reply = Reply::fixed(554, Enhanced::new(5, 5, 2), "This is SMTP");
pub(super) const CONTROL: Reply = Reply::fixed(501, Enhanced::new(5, 5, 2), "Control character in command");
pub(super) const NO_ARGUMENT: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "No argument expected");
pub(super) const ARGUMENT: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Argument expected");
pub(super) const HELO_NAME: Reply =
    Reply::fixed(501, Enhanced::new(5, 5, 4), "Domain name or address literal expected");
pub(super) const MAIL_SYNTAX: Reply =
    Reply::fixed(501, Enhanced::new(5, 5, 2), "Syntax: MAIL FROM:<address> [parameters]");
pub(super) const RCPT_SYNTAX: Reply =
    Reply::fixed(501, Enhanced::new(5, 5, 2), "Syntax: RCPT TO:<address> [parameters]");
pub(super) const BDAT_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Syntax: BDAT size [LAST]; closing");
pub(super) const SIZE_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad SIZE");
pub(super) const BODY_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad BODY; use 7BIT or 8BITMIME");
pub(super) const SMTPUTF8_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "SMTPUTF8 takes no value");
pub(super) const RET_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad RET");
pub(super) const ENVID_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad ENVID");
pub(super) const NOTIFY_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad NOTIFY");
pub(super) const ORCPT_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad ORCPT");
pub(super) const PARAMETER_TWICE: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Parameter given twice");
pub(super) const PARAMETER_UNKNOWN: Reply = Reply::fixed(555, Enhanced::new(5, 5, 4), "Unknown parameter");
pub(super) const NO_DSN: Reply =
    Reply::fixed(555, Enhanced::new(5, 5, 4), "Delivery status notifications are not offered to this client");
pub(super) const XCLIENT_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad XCLIENT attribute or value");
pub(super) const XCLIENT_IN_MAIL: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "XCLIENT within a transaction");
pub(super) const GO_TLS: Reply = Reply::fixed(220, Enhanced::new(2, 0, 0), "Ready to start TLS");
pub(super) const TLS_FIRST: Reply = Reply::fixed(530, Enhanced::new(5, 7, 0), "Must issue a STARTTLS command first");
pub(super) const TLS_TWICE: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "TLS is already active");
pub(super) const EARLY_TLS: Reply = Reply::fixed(554, Enhanced::new(5, 5, 0), "Data sent after STARTTLS; closing");
pub(super) const AUTH_FIRST: Reply = Reply::fixed(530, Enhanced::new(5, 7, 0), "Authentication required");
/// No client can authenticate here.
pub(super) const TRUSTED_ONLY: Reply =
    Reply::fixed(554, Enhanced::new(5, 7, 1), "Access denied: only trusted clients may send mail here");
pub(super) const AUTH_AFTER_TLS: Reply =
    Reply::fixed(538, Enhanced::new(5, 7, 11), "Encryption required: STARTTLS first");
pub(super) const AUTH_TWICE: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "Already authenticated");
pub(super) const AUTH_IN_MAIL: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "AUTH within a transaction");
pub(super) const AUTH_SYNTAX: Reply =
    Reply::fixed(501, Enhanced::new(5, 5, 4), "Syntax: AUTH mechanism [initial response]");
pub(super) const AUTH_UNKNOWN: Reply =
    Reply::fixed(504, Enhanced::new(5, 5, 4), "Authentication mechanism is not offered");
pub(super) const AUTH_CANCELLED: Reply = Reply::fixed(501, Enhanced::new(5, 7, 0), "Authentication cancelled");
pub(super) const AUTH_TOO_LONG: Reply = Reply::fixed(500, Enhanced::new(5, 5, 6), "Authentication line too long");
pub(super) const NOT_BASE64: Reply = Reply::fixed(501, Enhanced::new(5, 5, 2), "Bad base64");
pub(super) const TOO_MANY_LOGINS: Reply = Reply::fixed(421, Enhanced::new(4, 7, 0), "Too many failed logins, closing");
pub(super) const AUTH_PARAM_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "Bad AUTH parameter");
pub(super) const REQUIRETLS_SYNTAX: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "REQUIRETLS takes no value");
pub(super) const XVERP_SYNTAX: Reply =
    Reply::fixed(501, Enhanced::new(5, 5, 4), "XVERP takes two of the characters + - =");
pub(super) const XVERP_SENDER: Reply = Reply::fixed(501, Enhanced::new(5, 5, 4), "XVERP needs a sender");
pub const NOT_OFFERED: Reply = Reply::fixed(502, Enhanced::new(5, 5, 1), "Command not implemented");

pub(super) const LHLO_WANTED: Reply = Reply::fixed(500, Enhanced::new(5, 5, 1), "This is LMTP: LHLO expected");
pub(super) const LHLO_FIRST: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "LHLO first");
pub(super) const HELO_FIRST: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "EHLO or HELO first");
pub(super) const MAIL_FIRST: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "MAIL first");
pub(super) const NESTED_MAIL: Reply = Reply::fixed(503, Enhanced::new(5, 5, 1), "Nested MAIL command");
pub(super) const BDAT_BEGUN: Reply =
    Reply::fixed(503, Enhanced::new(5, 5, 1), "BDAT in progress: BDAT or RSET expected");
pub(super) const NO_RECIPIENTS: Reply = Reply::fixed(554, Enhanced::new(5, 5, 1), "No valid recipients");
pub(super) const EARLY_DATA: Reply =
    Reply::fixed(554, Enhanced::new(5, 5, 0), "Data sent before the reply to DATA; closing");

pub(super) const ROUTE: Reply = Reply::fixed(550, Enhanced::new(5, 7, 1), "Source routes are not accepted");
pub(super) const NOT_ASCII: Reply =
    Reply::fixed(553, Enhanced::new(5, 6, 7), "Non-ASCII address needs SMTPUTF8 and valid UTF-8");
pub(super) const TOO_BIG: Reply =
    Reply::of_limit(OwnLimit::MessageSize, 552, Enhanced::new(5, 3, 4), "Message size exceeds the limit");
pub(super) const BARE_LINE_END: Reply =
    Reply::fixed(550, Enhanced::new(5, 5, 2), "Bare <CR> or <LF>, or <NUL> in a dot line; closing");
pub(super) const BARE_IN_CHUNK: Reply =
    Reply::fixed(554, Enhanced::new(5, 6, 0), "Bare <CR> or <LF>, or <NUL> in a dot line, in message");
