//! Chooses a client's mechanism: the strongest that the server offers and the client supports.
//!
//! With a password: SCRAM bound to the channel, SCRAM, PLAIN, LOGIN, CRAM-MD5. With a token: OAUTHBEARER, XOAUTH2. All
//! are for protected channels only. PLAIN, LOGIN and tokens reveal the secret. A digest of CRAM-MD5 or a proof of SCRAM
//! can be attacked offline by a server that chose the challenge, or the salt and as few rounds as RFC 7677 section 4
//! allows (4,096), and by anyone who reads the exchange; channel binding does not change that. PLAIN and LOGIN come
//! before CRAM-MD5, since MD5 gains nothing there.

use crate::binding::{Binding, Bindings};
use crate::mechanism::{Mechanism, Mechanisms};

const BY_PASSWORD: [Mechanism; 5] =
    [Mechanism::ScramSha256Plus, Mechanism::ScramSha256, Mechanism::Plain, Mechanism::Login, Mechanism::CramMd5];
const BY_TOKEN: [Mechanism; 2] = [Mechanism::OauthBearer, Mechanism::Xoauth2];

/// A client's secret and channel.
#[derive(Debug, Clone, Copy)]
pub struct ClientCapabilities<'a> {
    /// Whether it has a token instead of a password.
    pub is_token: bool,
    /// The permitted mechanisms; by default all.
    pub allowed: Mechanisms,
    /// The channel is encrypted and the server authenticated, as far as the caller requires: passwords may be sent.
    pub is_protected: bool,
    pub bindings: &'a Bindings,
}

/// A mechanism, and SCRAM's channel-binding flag for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MechanismChoice {
    pub mechanism: Mechanism,
    pub(crate) flag: ClientFlag,
}

/// The client's channel-binding flag (RFC 5802 section 7, `gs2-cbind-flag`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientFlag {
    /// The client does not support it.
    Not,
    /// The client supports it, but the server seems not to. A server that does can detect an attacker by this.
    ServerCannot,
    Bound(Binding),
}

/// Why no mechanism is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoMechanism {
    #[error("the server offers no mechanism for {0} that is supported and allowed here")]
    NoneOffered(&'static str),
    #[error("the server offers only mechanisms that expose the secret, and the channel is not protected")]
    Unprotected,
}

impl MechanismChoice {
    /// A fixed mechanism, named in a configuration or a test.
    pub fn of(mechanism: Mechanism, bindings: &Bindings) -> MechanismChoice {
        let flag = match mechanism {
            Mechanism::ScramSha256Plus => bindings.best().map_or(ClientFlag::Not, ClientFlag::Bound),
            _ => ClientFlag::Not,
        };
        MechanismChoice { mechanism, flag }
    }
}

/// Chooses from the `offered` mechanisms.
pub fn choose(offered: Mechanisms, capabilities: &ClientCapabilities<'_>) -> Result<MechanismChoice, NoMechanism> {
    let order: &[Mechanism] = if capabilities.is_token { &BY_TOKEN } else { &BY_PASSWORD };
    let can_bind = capabilities.allowed.has(Mechanism::ScramSha256Plus) && !capabilities.bindings.is_empty();
    let mut is_unprotected = false;
    for &mechanism in order {
        if !offered.has(mechanism) || !capabilities.allowed.has(mechanism) {
            continue;
        }
        if !capabilities.is_protected {
            is_unprotected = true;
            continue;
        }
        let flag = match mechanism {
            Mechanism::ScramSha256Plus => match capabilities.bindings.best() {
                Some(binding) => ClientFlag::Bound(binding),
                None => continue,
            },
            Mechanism::ScramSha256 if can_bind => ClientFlag::ServerCannot,
            _ => ClientFlag::Not,
        };
        return Ok(MechanismChoice { mechanism, flag });
    }
    Err(if is_unprotected {
        NoMechanism::Unprotected
    } else {
        NoMechanism::NoneOffered(if capabilities.is_token { "a token" } else { "a password" })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings() -> Bindings {
        Bindings { exporter: Some([7; 32]), end_point: Some(vec![9; 32]) }
    }

    fn taken(offered: &str, capabilities: &ClientCapabilities<'_>) -> Result<Mechanism, NoMechanism> {
        choose(Mechanisms::parse(offered), capabilities).map(|choice| choice.mechanism)
    }

    #[test]
    fn the_strongest_is_taken_and_cram_md5_last() {
        let bindings = bindings();
        let capabilities =
            ClientCapabilities { is_token: false, allowed: Mechanisms::all(), is_protected: true, bindings: &bindings };
        let mut offered = Mechanisms::all();
        for wanted in BY_PASSWORD {
            assert_eq!(choose(offered, &capabilities).unwrap().mechanism, wanted);
            offered = offered.without(wanted);
        }
        assert_eq!(choose(offered, &capabilities), Err(NoMechanism::NoneOffered("a password")));
        let capabilities = ClientCapabilities { is_token: true, ..capabilities };
        assert_eq!(taken("PLAIN XOAUTH2 OAUTHBEARER", &capabilities), Ok(Mechanism::OauthBearer));
        assert_eq!(taken("PLAIN XOAUTH2", &capabilities), Ok(Mechanism::Xoauth2));
        assert_eq!(taken("PLAIN", &capabilities), Err(NoMechanism::NoneOffered("a token")));
    }

    #[test]
    fn no_secret_goes_over_an_open_channel() {
        let none = Bindings::default();
        let capabilities =
            ClientCapabilities { is_token: false, allowed: Mechanisms::all(), is_protected: false, bindings: &none };
        for mechanism in BY_PASSWORD {
            let offered = mechanism.name();
            assert_eq!(taken(offered, &capabilities), Err(NoMechanism::Unprotected), "{offered}");
        }
        assert_eq!(taken("PLAIN CRAM-MD5 SCRAM-SHA-256", &capabilities), Err(NoMechanism::Unprotected));
        let bound = bindings();
        let bound = ClientCapabilities { bindings: &bound, ..capabilities };
        assert_eq!(taken("SCRAM-SHA-256 SCRAM-SHA-256-PLUS", &bound), Err(NoMechanism::Unprotected), "bound to whom?");
        let protected = ClientCapabilities { is_protected: true, ..capabilities };
        assert_eq!(taken("PLAIN CRAM-MD5 SCRAM-SHA-256", &protected), Ok(Mechanism::ScramSha256));
        assert_eq!(taken("GSSAPI", &capabilities), Err(NoMechanism::NoneOffered("a password")));
        assert_eq!(
            taken("XOAUTH2", &ClientCapabilities { is_token: true, ..capabilities }),
            Err(NoMechanism::Unprotected)
        );
        let allowed = Mechanisms::parse("CRAM-MD5");
        assert_eq!(
            taken("PLAIN CRAM-MD5", &ClientCapabilities { allowed, ..capabilities }),
            Err(NoMechanism::Unprotected)
        );
        assert_eq!(
            taken("PLAIN CRAM-MD5", &ClientCapabilities { allowed, is_protected: true, ..capabilities }),
            Ok(Mechanism::CramMd5)
        );
    }

    #[test]
    fn what_is_said_of_channel_binding_is_what_we_can() {
        let (bound, none) = (bindings(), Bindings::default());
        let capabilities =
            ClientCapabilities { is_token: false, allowed: Mechanisms::all(), is_protected: true, bindings: &bound };
        let flag = |offered: &str, capabilities: &ClientCapabilities<'_>| {
            choose(Mechanisms::parse(offered), capabilities).unwrap().flag
        };
        let binding = Binding { kind: crate::BindingKind::TlsExporter, data: vec![7; 32] };
        assert_eq!(flag("SCRAM-SHA-256 SCRAM-SHA-256-PLUS", &capabilities), ClientFlag::Bound(binding));
        assert_eq!(flag("SCRAM-SHA-256", &capabilities), ClientFlag::ServerCannot);
        let unbound = ClientCapabilities { bindings: &none, ..capabilities };
        assert_eq!(taken("SCRAM-SHA-256 SCRAM-SHA-256-PLUS", &unbound), Ok(Mechanism::ScramSha256));
        assert_eq!(flag("SCRAM-SHA-256 SCRAM-SHA-256-PLUS", &unbound), ClientFlag::Not);
        // A client that may not use it must not claim that the server lacks it: the server would suspect an attack.
        let forbidden =
            ClientCapabilities { allowed: Mechanisms::all().without(Mechanism::ScramSha256Plus), ..capabilities };
        assert_eq!(flag("SCRAM-SHA-256 SCRAM-SHA-256-PLUS", &forbidden), ClientFlag::Not);
    }
}
