//! Channel bindings (RFC 5056): data that both ends of one TLS session share and nobody in the middle can have.

use std::fmt;

/// The supported kinds. `tls-unique` is not defined for TLS 1.3 and was unsafe before it (RFC 9266 section 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    /// 32 octets that the session exports under the label `EXPORTER-Channel-Binding` (RFC 9266).
    TlsExporter,
    /// The hash of the server's certificate (RFC 5929 section 4).
    TlsServerEndPoint,
}

impl BindingKind {
    pub fn name(self) -> &'static str {
        match self {
            BindingKind::TlsExporter => "tls-exporter",
            BindingKind::TlsServerEndPoint => "tls-server-end-point",
        }
    }

    /// Parses a name, case-sensitively (RFC 5802 section 7, `cb-name`).
    pub fn parse(name: &str) -> Option<BindingKind> {
        [BindingKind::TlsExporter, BindingKind::TlsServerEndPoint].into_iter().find(|kind| kind.name() == name)
    }
}

/// One binding of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct Binding {
    pub kind: BindingKind,
    pub data: Vec<u8>,
}

/// The bindings of a TLS session; empty without TLS.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bindings {
    /// `None` if the session has none: TLS 1.2 without the extended master secret (RFC 9266 section 4.2).
    pub exporter: Option<[u8; 32]>,
    pub end_point: Option<Vec<u8>>,
}

impl Bindings {
    pub fn is_empty(&self) -> bool {
        self.exporter.is_none() && self.end_point.is_none()
    }

    pub fn get(&self, kind: BindingKind) -> Option<&[u8]> {
        match kind {
            BindingKind::TlsExporter => self.exporter.as_ref().map(<[u8; 32]>::as_slice),
            BindingKind::TlsServerEndPoint => self.end_point.as_deref(),
        }
    }

    /// The binding for a client: the session's own rather than the certificate's, which other sessions may share.
    pub fn best(&self) -> Option<Binding> {
        [BindingKind::TlsExporter, BindingKind::TlsServerEndPoint]
            .into_iter()
            .find_map(|kind| Some(Binding { kind, data: self.get(kind)?.to_vec() }))
    }
}

/// The exported binding is a secret.
impl fmt::Debug for Bindings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = (self.exporter.is_some(), self.end_point.is_some());
        out.debug_struct("Bindings").field("exporter", &names.0).field("end_point", &names.1).finish()
    }
}

impl fmt::Debug for Binding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Binding").field("kind", &self.kind).finish_non_exhaustive()
    }
}
