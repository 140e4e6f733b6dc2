//! The DMARC reports that this server has kept, summed for the checks.

use stentor_config::Config;
use stentor_core::received_reports::{FOLDER, each_kept};
use stentor_domain_reports::dmarc::{DAY_S, DmarcSums};
use stentor_identity::{POLICY_DAYS, RECENT_DAYS, ReceivedReports};
use stentor_mail::address::Address;

#[derive(Debug, Default)]
pub(crate) struct KeptReports {
    recent: DmarcSums,
    policy: DmarcSums,
    host_names: Vec<String>,
}

impl KeptReports {
    /// Reads all of them, unreadable files excepted. Blocks.
    ///
    /// # Errors
    /// The folder cannot be read, though reports are kept in it.
    pub fn read(config: &Config, now_s: u64) -> Result<KeptReports, String> {
        let of_sources = config.sending.sources.iter().map(|source| source.ehlo_name.clone());
        let mut host_names: Vec<String> = std::iter::once(config.hostname.clone()).chain(of_sources).collect();
        host_names.sort_unstable();
        host_names.dedup();
        let mut kept = KeptReports { host_names, ..KeptReports::default() };
        let read = each_kept(&config.data_dir, &mut |report| {
            for (sums, days) in [(&mut kept.recent, RECENT_DAYS), (&mut kept.policy, POLICY_DAYS)] {
                if report.end_s >= now_s.saturating_sub(days * DAY_S) {
                    sums.add(report);
                }
            }
        });
        match read {
            Err(error) if config.dmarc_reports.address.is_some() => {
                let folder = config.data_dir.join(FOLDER);
                Err(format!("the DMARC reports in {} could not be read: {error}", folder.display()))
            }
            _ => Ok(kept),
        }
    }

    pub fn received<'a>(
        &'a self,
        config: &'a Config,
        is_unknown_here: &'a (dyn Fn(&str) -> bool + Sync),
    ) -> ReceivedReports<'a> {
        ReceivedReports {
            address: config.dmarc_reports.address.as_ref().map(Address::as_str),
            host_names: &self.host_names,
            is_unknown_here,
            recent: &self.recent,
            policy: &self.policy,
        }
    }
}
