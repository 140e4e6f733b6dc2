//! Checks whether DANE can work in a configuration that uses it: the name servers must validate, and their answers must
//! be trusted.

use std::time::Duration;

use stentor_config::Config;
use stentor_core::Settings;
use stentor_resolve::Resolver;
use stentor_tls_policy::{Requirement, Strength};
use tokio::time::timeout;

/// Timeout for the name servers.
const WAIT: Duration = Duration::from_secs(3);

/// The problem, if `[delivery] tls` (written in the file or not) or a rule uses DANE.
pub(super) fn finding(config: &Config, is_written: bool) -> Option<String> {
    let policies = &config.protection.policies;
    let strengths = || policies.requirements().map(Requirement::strength);
    // `sts` by default includes DANE where available.
    let asks = |strength: Strength| matches!(strength, Strength::Dane | Strength::DaneOnly);
    if !(strengths().any(asks) || is_written && policies.default_requirement().strength() == Strength::Sts) {
        return None;
    }
    let then = if strengths().any(|strength| strength == Strength::DaneOnly) {
        "TLSA records are ignored, and `dane-only` sends no mail"
    } else {
        "TLSA records are ignored"
    };
    let tried = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let resolver = Resolver::new(Settings::resolver_of(config, &[])).map_err(|error| error.to_string())?;
            if !resolver.validates() {
                return Ok(Some(
                    "not every name server in [dns] is on loopback, and answers over a network prove nothing",
                ));
            }
            match timeout(WAIT, resolver.validates_root()).await {
                Ok(Ok(true)) => Ok(None),
                Ok(Ok(false)) => {
                    Ok(Some("the name servers in [dns] do not validate: they do not report the root zone as authentic"))
                }
                Ok(Err(why)) => Err(why),
                Err(_) => Err(format!("no answer within {} s", WAIT.as_secs())),
            }
        })
    };
    match tried() {
        Ok(found) => found.map(|why| format!("{then}: {why}")),
        // A silent name server has been reported already.
        Err(_) => None,
    }
}
