//! Gathers the observations of one second for the health model.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use stentor_config::AuthSource;
use stentor_control::format::plural;
use stentor_core::lists::ListTrouble;
use stentor_core::live::health::{ConditionTexts, Moment, Name, Observation};
use stentor_core::{Core, Settings};
use stentor_milter::protocol::OnFailure;
use stentor_queue::ids::Ms;
use stentor_records::health::ServiceOutcomes;
use stentor_ruletables::TableTrouble;

use super::clock;
use super::probes::{self, NameServers, Schedule, service_name};
use super::reputation;
use super::sides::Sides;

/// Interval of the costlier checks.
const SLOW_MS: Ms = 3_000;
/// A certificate that expires within this time is reported.
const CERTIFICATE_S: i64 = 7 * 86_400;
const DAY_S: i64 = 86_400;

pub(super) struct Gatherer {
    core: Arc<Core>,
    schedule: Schedule,
    name_servers: NameServers,
    slow_at: Option<Ms>,
    /// The result of the last slow check.
    clock: Option<String>,
    /// Set while the committer checks free space and the folders are examined.
    is_asking: Arc<AtomicBool>,
    /// Why the submission folder is unusable, found by the slow check.
    folder: Arc<Mutex<Option<String>>>,
    /// Set while the lists' files are checked.
    is_checking_lists: Arc<AtomicBool>,
    sides: Sides,
}

impl Gatherer {
    pub fn new(core: Arc<Core>) -> Gatherer {
        let sides = Sides::new(&core);
        let (schedule, name_servers) = (Schedule::default(), NameServers::default());
        Gatherer {
            core,
            schedule,
            name_servers,
            slow_at: None,
            clock: None,
            is_asking: Arc::default(),
            folder: Arc::default(),
            is_checking_lists: Arc::default(),
            sides,
        }
    }

    pub fn look(&mut self, at: Moment) -> Vec<Observation> {
        let core = self.core.clone();
        let mut seen = Vec::new();
        self.slow(at.steady);
        probes::services(&core, &mut self.schedule, at.steady);
        room(&core, &mut seen);
        self.clients(at.steady, &mut seen);
        services(&core.settings(), &mut seen);
        self.network(at.steady, &mut seen);
        certificates(&core, at.now, &mut seen);
        logins(&core, &mut seen);
        tables(&core.settings(), &mut seen);
        records(&core, self.folder.lock().clone(), &mut seen);
        reputation::blocked(&core, at.now, &mut seen);
        if let Some(what) = &self.clock {
            seen.push(Observation::holds(Name::Clock, "", ConditionTexts::new(what.as_str(), clock::CLOCK_NEXT)));
        }
        seen
    }

    /// Runs the checks that are not made each second.
    fn slow(&mut self, steady: Ms) {
        if self.slow_at.is_some_and(|at| steady.saturating_sub(at) < SLOW_MS) {
            return;
        }
        self.slow_at = Some(steady);
        self.schedule.retain(steady);
        self.clock = clock::clock_trouble(&self.core);
        for (name, high) in reputation::complaints(&self.core, self.core.clock.now()) {
            self.core.live.health.report_all(name, high);
        }
        // Finds missing files even if nobody posts.
        if !self.is_checking_lists.swap(true, Ordering::AcqRel) {
            let (core, is_checking_lists) = (self.core.clone(), self.is_checking_lists.clone());
            tokio::spawn(async move {
                core.live.health.report_all(Name::SubscribersFile, lists(&core).await);
                is_checking_lists.store(false, Ordering::Release);
            });
        }
        // Notices a disk that fills while no mail comes.
        if !self.is_asking.swap(true, Ordering::AcqRel) {
            let (core, is_asking, folder) = (self.core.clone(), self.is_asking.clone(), self.folder.clone());
            tokio::spawn(async move {
                core.refresh_space().await;
                let path = core.settings().config.submission.folder.clone();
                let looked = tokio::task::spawn_blocking(move || path.as_deref().and_then(unusable)).await;
                *folder.lock() = looked.ok().flatten();
                is_asking.store(false, Ordering::Release);
            });
        }
    }

    /// Observes limits and refusals that affect clients.
    fn clients(&mut self, steady: Ms, seen: &mut Vec<Observation>) {
        let core = &self.core;
        let intake = &core.live.health.intake;
        let next = "run `stentor explain --from SENDER --to RECIPIENT` to see which rule or table decides; the \
            refusals are in the log";
        let mut answered = |name, subject: &str, outcomes: &ServiceOutcomes, when: &str| {
            let tally = outcomes.read();
            let what = format!("all {when} with a temporary error; the last: {}", tally.why);
            seen.push(Observation::counted(name, subject, &tally, ConditionTexts::new(what, next)));
        };
        let (recipients, messages) = (&intake.recipients, &intake.messages);
        answered(Name::RecipientsDeferred, "", &recipients.known, "recipients are answered");
        answered(Name::MessagesDeferred, "", &messages.known, "messages are answered after their data");
        let when = "recipients of untrusted clients are answered";
        answered(Name::UntrustedDeferred, "recipients", &recipients.untrusted, when);
        let when = "messages of untrusted clients are answered after their data";
        answered(Name::UntrustedDeferred, "messages", &messages.untrusted, when);
        self.sides.look(core, steady, seen);
    }

    fn network(&mut self, steady: Ms, seen: &mut Vec<Observation>) {
        let core = &self.core;
        let resolver = core.resolver();
        if let Some(tally) = self.name_servers.look(&resolver, &mut self.schedule, steady) {
            let named = resolver.name_servers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let what = format!("DNS is down: no name server answers ({named}): {}", tally.why);
            let next = "check that they run and can be reached from here, or name others in `[dns] servers` (by \
                default /etc/resolv.conf)";
            seen.push(Observation::counted(Name::Dns, "", &tally, ConditionTexts::new(what, next)));
        }
        if let Some(what) = core.live.health.reach.trouble(steady) {
            let next = "mail waits; check the network, the default route (`ip route`) and firewalls for outgoing SMTP";
            seen.push(Observation::holds(Name::Network, "", ConditionTexts::new(what, next)));
        }
    }
}

/// Current lasting states of the server, including those too recent for a condition.
pub(super) fn states(core: &Arc<Core>) -> Vec<Observation> {
    let (mut seen, settings) = (Vec::new(), core.settings());
    room(core, &mut seen);
    certificates(core, core.clock.now(), &mut seen);
    logins(core, &mut seen);
    tables(&settings, &mut seen);
    records(core, None, &mut seen);
    reputation::blocked(core, core.clock.now(), &mut seen);
    if let Some(what) = clock::clock_trouble(core) {
        seen.push(Observation::holds(Name::Clock, "", ConditionTexts::new(what, clock::CLOCK_NEXT)));
    }
    seen.extend(core.live.health.reports());
    seen
}

/// Observes the space for new mail.
fn room(core: &Core, seen: &mut Vec<Observation>) {
    let next = "mail is accepted again without a restart";
    let full = [
        (&core.disk_full, Name::DiskFull, "the disk is nearly full: new mail gets 452 4.3.1", "free some space"),
        (
            &core.memory_full,
            Name::MemoryFull,
            "memory is nearly full: new mail gets 452 4.3.1",
            "raise the control group's memory limit",
        ),
        (
            &core.addresses_full,
            Name::AddressBookFull,
            "the address book is full: new mail gets 452 4.3.1",
            "raise [journal] addresses_max and restart, or lower address_unseen_days",
        ),
    ];
    for (flag, name, what, first) in full {
        if flag.load(Ordering::Relaxed) {
            seen.push(Observation::holds(name, "", ConditionTexts::new(what, format!("{first}; {next}"))));
        }
    }
    if let Some(trouble) = core.registry.trouble() {
        let what = format!("the registry cannot be written: {}; no suppression can be added or removed", trouble.why);
        let next = if trouble.is_full {
            "free some space in data_dir; the next change is tried without a restart"
        } else {
            "check the kernel log and the disk's health (smartctl), then restart the server"
        };
        seen.push(Observation::holds(Name::Registry, "", ConditionTexts::new(what, next)));
    }
    let tally = core.live.health.journal.read();
    let what = format!("the journal cannot be written: {}; new mail gets 451 4.3.0", tally.why);
    let next = "check the kernel log and the disk's health (smartctl)";
    seen.push(Observation::counted(Name::Journal, "", &tally, ConditionTexts::new(what, next)));
}

/// Observes milters, policy services and tables behind sockets.
fn services(settings: &Settings, seen: &mut Vec<Observation>) {
    for milter in &settings.milters {
        let (name, place) = (&milter.settings.name, &milter.settings.place);
        let tally = milter.outcomes.read();
        let action = milter.failure_action();
        let then = match action {
            OnFailure::Accept => "mail is accepted without it",
            OnFailure::Tempfail => "mail is deferred",
            OnFailure::Reject => "mail is refused",
        };
        let what = format!("milter {name} ({place}) fails: {}; {then}", tally.why);
        let next = "start it, or correct its `address`; the server retries automatically. Until then, `default_action` \
                    decides about mail (docs/operate/milters.md)";
        let observation = Observation::counted(Name::Milter, name.as_str(), &tally, ConditionTexts::new(what, next));
        // Ready if the milter may work: a load balancer must send the message that shows whether it does.
        seen.push(observation.refusing(action != OnFailure::Accept && !milter.outcomes.may_work()));
    }
    for service in settings.tables.services() {
        let tally = service.remote.outcomes.read();
        let (kind, then) = match service.default_action {
            _ if !service.is_policy_service => ("table", "mail that needs it is deferred".to_owned()),
            Some(action) => ("policy service", format!("its `default_action` {action:?} applies")),
            None => ("policy service", "mail whose rules use it is deferred".to_owned()),
        };
        let what = format!("{kind} {} ({}) fails: {}; {then}", service.name, service.remote.name(), tally.why);
        let next = "start it, or correct its address; the server retries automatically";
        let name = service_name(service.is_policy_service);
        let observation = Observation::counted(name, service.name, &tally, ConditionTexts::new(what, next));
        let refuses = service.is_policy_service && service.default_action.is_none();
        seen.push(observation.refusing(refuses && !service.remote.outcomes.may_work()));
    }
}

/// Observes the certificates in force.
fn certificates(core: &Core, now: Ms, seen: &mut Vec<Observation>) {
    let security = core.security();
    let Some(server) = security.tls() else { return };
    let now_s = (now / 1_000).cast_signed();
    for identity in server.store().current().all() {
        let certificate = &identity.certificate;
        let name = certificate.names.first().unwrap_or(&certificate.subject);
        let next = "renew it; the server reads the files again automatically, `stentor tls show` prints their \
            contents (docs/operate/tls.md)";
        let mut holds =
            |kind, what: String| seen.push(Observation::holds(kind, &**name, ConditionTexts::new(what, next)));
        if certificate.not_after <= now_s {
            holds(Name::Certificate, format!("the certificate of {name} expired on {}", certificate.ends_on()));
        } else if certificate.not_before > now_s {
            let what = format!("the certificate of {name} is not valid yet: set the clock, or wait");
            holds(Name::Certificate, what);
        } else if certificate.not_after - now_s < CERTIFICATE_S {
            let left = plural(((certificate.not_after - now_s) / DAY_S).cast_unsigned(), "day");
            let what = format!("the certificate of {name} expires in {left}, on {}", certificate.ends_on());
            holds(Name::CertificateEnds, what);
        }
    }
}

fn logins(core: &Core, seen: &mut Vec<Observation>) {
    let (security, settings) = (core.security(), core.settings());
    let Some(auth) = security.auth() else { return };
    if let Some(why) = auth.file_trouble() {
        let what = format!("the new users file cannot be used: {why}; the previous version stays in use");
        let next = "correct the file; the server reads it again automatically, but a restart would fail";
        seen.push(Observation::holds(Name::UsersFile, "", ConditionTexts::new(what, next)));
    }
    if let (Some(why), Some(AuthSource::Dovecot(path))) = (auth.dovecot_trouble(), &settings.config.auth.source) {
        let what = format!("Dovecot's auth service ({}) is not available: {why}; nobody can log in", path.display());
        let next = "start it, or correct `dovecot` in [auth]; the server retries automatically";
        seen.push(Observation::holds(Name::Dovecot, "", ConditionTexts::new(what, next)));
    }
}

fn tables(settings: &Settings, seen: &mut Vec<Observation>) {
    for TableTrouble { name, place, why, has_version } in settings.tables.troubles() {
        let what = if has_version {
            format!("table {name} ({place}) is not up to date: {why}; the previous contents stay in use")
        } else {
            format!("table {name} ({place}) could not be read: {why}; mail that needs it gets 451 4.3.0")
        };
        let next = format!(
            "correct the file; the server reads it again automatically; check it with `stentor table \
            check {name}`"
        );
        seen.push(Observation::holds(Name::TableFile, name, ConditionTexts::new(what, next)));
    }
}

/// Lists that do not use their file's current content.
async fn lists(core: &Arc<Core>) -> Vec<(String, ConditionTexts)> {
    let words = |ListTrouble { name, why, keeps_old }| {
        let then = if keeps_old { "posts go to the subscribers last read" } else { "posts get 451 4.3.0" };
        let what = format!("list {name}: the subscribers file cannot be used: {why}; {then}");
        let next = "restore the file, or correct its owner, mode or `subscribers`; the next post reads it";
        (name.to_string(), ConditionTexts::new(what, next))
    };
    core.lists.troubles(core).await.into_iter().map(words).collect()
}

/// Why a folder cannot be read.
fn unusable(folder: &Path) -> Option<String> {
    let error = std::fs::read_dir(folder).err()?;
    Some(format!("{}: {error}", folder.display()))
}

/// Observes the files written beside the journal.
fn records(core: &Core, folder: Option<String>, seen: &mut Vec<Observation>) {
    for (place, why) in core.log.troubles() {
        let what = format!("cannot write the log {place}, lines are lost: {why}");
        let next = "free some space there, correct owner or mode, or name another place in [log]";
        seen.push(Observation::holds(Name::Log, place, ConditionTexts::new(what, next)));
    }
    if core.history.status().is_failing {
        let what = "cannot write the history, records are dropped: they will be missing in `trace`, statistics and \
            webhooks";
        let next = "the log shows the error; free some space in data_dir, or correct its owner";
        seen.push(Observation::holds(Name::History, "", ConditionTexts::new(what, next)));
    }
    if let Some(why) = core.submissions.lock().unusable.clone().or(folder) {
        let what = format!("the submission folder cannot be used: {why}; mail of local users waits in it");
        let next = "run `stentor check` to see what is wrong with the folder";
        seen.push(Observation::holds(Name::SubmissionFolder, "", ConditionTexts::new(what, next)));
    }
}
