//! `stentor serve`: runs the server and handles signals. SIGTERM and SIGINT stop it in order, a second one at once.
//! SIGHUP reloads the configuration; an invalid one is reported and the old one stays in force.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use stentor_admin::operator::{Demand, Operator, ReloadOutcome};
use stentor_config::{Config, Diagnostic};
use stentor_core::Settings;
use stentor_core::security::Security;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::asking::{CONFIGURATION, fail};
use crate::certificates::{self, LoadedCertificates};
use crate::serve::Server;

/// Maximum threads that move mail; the committer, the log's writer and blocking file reads have their own.
const WORKERS_MAX: usize = 8;
/// Exit code of a stop that did not wait for open work.
const INTERRUPTED: u8 = 130;

/// Builds the runtime of a server.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, WORKERS_MAX);
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

pub fn serve(config: Config) -> ExitCode {
    raise_descriptor_limit();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start the runtime: {error}")),
    };
    let code = runtime.block_on(run(config));
    // A slow file read or a hanging disk must not delay a requested stop.
    runtime.shutdown_background();
    code
}

/// Keeps passwords, tokens and keys off the disk: disables core dumps and stops other users' programs from attaching.
/// Our own secrets are overwritten after use, but library buffers are not, such as the one from which TLS returns a
/// client's AUTH: without this, a dump would contain logins of recent sessions.
pub(crate) fn keep_out_of_core_dumps() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    // Everything works without it.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps could not be disabled; they may contain passwords");
    }
}

/// Raises the descriptor limit as far as the system allows: each connection needs one.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it cannot be raised, accepting is paused when descriptors run out.
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn run(config: Config) -> ExitCode {
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals else {
        return fail("cannot install signal handlers");
    };
    let mut server = match Server::start(config).await {
        Ok(server) => server,
        Err(error) => {
            let code = fail(&error.to_string());
            return if error.is_of_configuration() { ExitCode::from(CONFIGURATION) } else { code };
        }
    };
    // Everything needed from this process's /proc is open by now.
    keep_out_of_core_dumps();
    let (demands, mut demanded) = mpsc::unbounded_channel();
    let sessions = server.sessions_counter();
    let operator = Arc::new(Operator::new(server.core.clone(), demands, sessions, server.webhooks_troubled()));
    tokio::spawn(operator.overviews.causes.clone().keep(server.core.clone()));
    let mut listening = server.listen_control(operator.clone());
    if listening.is_ok() {
        listening = server.listen_http(operator);
    }
    if let Err(error) = listening {
        server.stop().await;
        return fail(&error.to_string());
    }
    for address in &server.http_addresses {
        let scheme = if server.core.settings().config.http.tls { "https" } else { "http" };
        tracing::info!("console at {scheme}://{address}/");
    }
    for (address, service) in &server.services {
        tracing::info!(%address, service = service.name(), "listening");
    }
    loop {
        let demand = tokio::select! {
            _ = terminate.recv() => Demand::Stop,
            _ = interrupt.recv() => Demand::Stop,
            _ = hangup.recv() => Demand::Reload(None),
            Some(demand) = demanded.recv() => demand,
        };
        match demand {
            Demand::Reload(asked) => {
                let reloaded = reload(&server);
                if let Some(asked) = asked {
                    // The requester may be gone.
                    let _ = asked.send(reloaded);
                }
            }
            Demand::Stop => break,
        }
    }
    // Later reload requests are told that the server is stopping.
    drop(demanded);
    tracing::info!("stopping once open transactions have ended; a second signal stops at once");
    tokio::select! {
        () = server.stop() => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        _ = terminate.recv() => ExitCode::from(INTERRUPTED),
        _ = interrupt.recv() => ExitCode::from(INTERRUPTED),
    }
}

/// Everything that a reload puts in force.
struct ReloadPlan {
    settings: Settings,
    kept: Vec<String>,
    certificates: LoadedCertificates,
    security: Security,
}

/// Reads the configuration and its files of certificates, CAs, users, bounce rules and DKIM keys. Nothing is in force
/// yet: an error in one must not leave a partial change behind.
fn read_again(server: &Server, file: &Path, old: &Settings) -> Result<ReloadPlan, Vec<Diagnostic>> {
    let (config, kept) = stentor_config::check_again(file, &old.config)?;
    let certificates = certificates::load(&config)?;
    let security =
        Security::open(&config, &server.certificates.store, Some(&server.core.security()), &server.core.clock)
            .map_err(|why| vec![config.tls_diagnostic(why)])?;
    let mut settings = Settings::new(config, Some(old));
    settings.read_roots().map_err(|diagnostic| vec![*diagnostic])?;
    settings.read_bounce_rules().map_err(|diagnostic| vec![*diagnostic])?;
    let warnings = settings.read_dkim_keys()?;
    settings.config.warnings.extend(warnings);
    settings.read_copy_key().map_err(|why| vec![settings.config.tls_diagnostic(why.to_string())])?;
    Ok(ReloadPlan { settings, kept, certificates, security })
}

/// Reloads the configuration. Keys that need a restart are reported and keep their old values (`config/reload.rs`).
fn reload(server: &Server) -> ReloadOutcome {
    server.core.log.reopen();
    let old = server.core.settings();
    let Some(file) = old.config.file.as_deref() else {
        tracing::info!("no configuration file to reload; logs reopened");
        return ReloadOutcome::NoFile;
    };
    match read_again(server, file, &old) {
        Ok(ReloadPlan { settings, kept, certificates, security }) => {
            for key in &kept {
                tracing::warn!("{key} changed: takes effect after a restart");
            }
            let warnings: Vec<String> = settings.config.warnings.iter().map(ToString::to_string).collect();
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
            let settings = Arc::new(settings);
            server.certificates.put(certificates);
            server.core.replace_security(Arc::new(security));
            server.core.resolver().clear_cache();
            let has_new_routes = settings.rules.by_recipient != old.rules.by_recipient
                || settings.rules.hops != old.rules.hops
                || settings.config.sending.sites != old.config.sending.sites
                // The required TLS is part of a site's name.
                || settings.config.protection.policies != old.config.protection.policies;
            server.core.replace_settings(settings.clone());
            server.acme.notify_one();
            server.core.dkim.rotating.wake();
            server.core.call_ahead.forget_refusals();
            server.core.with(|hub, now| {
                hub.sched.configure(settings.sched.clone());
                settings.give_rules(Some(&old), &mut hub.sched);
                settings.give_queue_only(&mut hub.sched, now);
                if has_new_routes {
                    hub.sched.routes_changed(now);
                }
            });
            server.core.lists.remove_unconfigured(&server.core);
            let core = server.core.clone();
            tokio::spawn(async move { core.lists.refresh_configured(&core).await });
            tracing::info!(file = %file.display(), "configuration reloaded");
            ReloadOutcome::InForce { kept, warnings }
        }
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                tracing::error!("{diagnostic}");
            }
            tracing::error!(
                file = %file.display(),
                "the configuration has errors: the old one stays in force; correct the file, then `stentor reload`"
            );
            ReloadOutcome::Refused(diagnostics.iter().map(ToString::to_string).collect())
        }
    }
}
