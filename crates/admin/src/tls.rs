//! TLS of sessions with a site's hosts, for its views: the last session of each host, and the weakest of all.

use stentor_control::{CertificateView, HostView, TlsView, WeakTlsView};
use stentor_core::Core;
use stentor_core::tls_seen::WeakSession;
use stentor_queue::ids::Ms;

/// Fills in the TLS data of hosts; returns the weakest session with any of them in thirty days.
pub fn fill<'v>(core: &Core, hosts: impl Iterator<Item = &'v mut HostView>, now: Ms) -> Option<WeakTlsView> {
    let mut weakest: Option<(WeakSession, String)> = None;
    for view in hosts {
        let Some(seen) = core.tls_seen.of(&view.host) else { continue };
        let of_host = seen.weakest(now).cloned();
        view.tls = Some(TlsView {
            session: seen.tls.into(),
            at: seen.at,
            proven: seen.proven,
            certificate: seen.certificate.map(|shown| CertificateView {
                names: shown.names,
                issuer: shown.issuer,
                ends: shown.ends,
                sha256: shown.sha256,
                key_sha256: shown.key_sha256,
            }),
            weakest: of_host.as_ref().map(|weak| weak_view(weak, &view.host)),
        });
        let Some(of_host) = of_host else { continue };
        if weakest.as_ref().is_none_or(|(weak, _)| *weak.weaker(&of_host) == of_host) {
            weakest = Some((of_host, view.host.clone()));
        }
    }
    weakest.map(|(weak, host)| weak_view(&weak, &host))
}

fn weak_view(weak: &WeakSession, host: &str) -> WeakTlsView {
    WeakTlsView { session: weak.tls.to_string(), at: weak.at, host: host.to_owned() }
}
