//! The systemd units of docs/operate: systemd accepts them, and what they leave of root's rights is enough for
//! deliveries.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use stentor_harness::{skipped, stentor, stentor_deliver};
use tempfile::TempDir;

use crate::local_delivery::{Helper, home, mails, uid_of};

/// The unit of a page.
fn unit(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operate").join(page);
    let text = fs::read_to_string(path).expect("a page");
    let unit = text.split("```ini\n").find(|block| block.starts_with("[Unit]")).expect("a unit");
    unit.split("```").next().unwrap_or_default().to_owned()
}

/// The words behind a key of a unit.
fn words<'u>(unit: &'u str, key: &str) -> Vec<&'u str> {
    let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{key} is not in {unit}")).split_whitespace().collect()
}

#[test]
fn systemd_accepts_the_units() {
    let folder = TempDir::new().unwrap();
    for (page, name, program) in
        [("operating.md", "stentor", stentor()), ("local-delivery.md", "stentor-deliver", stentor_deliver())]
    {
        let text = unit(page);
        let path = words(&text, "ExecStart")[0].to_owned();
        assert!(path.ends_with(&format!("/{name}")), "{path}");
        let file = folder.path().join(format!("{name}.service"));
        fs::write(&file, text.replace(&path, &program.display().to_string())).unwrap();
        let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&file).output() else {
            return skipped("needs systemd-analyze");
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about = said.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
        assert!(output.status.success() && about.is_empty(), "{name}: {said}");
    }
}

#[test]
fn what_the_unit_leaves_of_root_is_enough_for_deliveries() {
    let services = "[services.local]\nkind = \"maildir\"\npath = \"$DIR/${user}/Maildir\"\n\
                    [services.spool]\nkind = \"mbox\"\npath = \"$DIR/spool/${user}\"\n\
                    [services.slow]\nkind = \"program\"\nuser = \"nobody\"\ncommand = [\"/bin/sleep\", \"100\"]\ntimeout_s = 1\n\
                    [services.rights]\nkind = \"program\"\nuser = \"nobody\"\n\
                    command = \"grep NoNewPrivs /proc/self/status; touch /etc/x 2>&1; exit 69\"\nshell = true\n\
                    [services.aliases]\nkind = \"aliases\"\nfiles = [\"$DIR/aliases\"]\n";
    let Some(mut helper) = Helper::prepare(services) else { return };
    let unit = unit("local-delivery.md");
    assert_eq!(words(&unit, "ProtectSystem"), ["full"]);
    let kept: Vec<String> = words(&unit, "CapabilityBoundingSet")
        .iter()
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let folder = home(&helper, "games", uid_of("games"));
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(helper.path("spool")).unwrap();
    chown(helper.path("spool"), None, Some(8)).unwrap();
    fs::set_permissions(helper.path("spool"), Permissions::from_mode(0o2775)).unwrap();
    // A file in a folder that root reads by its rights alone.
    let list = folder.join("list");
    fs::write(&list, "ann@one.example\n").unwrap();
    chown(&list, Some(uid_of("games")), None).unwrap();
    fs::set_permissions(&list, Permissions::from_mode(0o600)).unwrap();
    fs::write(helper.path("aliases"), format!("crew: :include:{}, |/bin/true\n", list.display())).unwrap();
    fs::set_permissions(helper.path("aliases"), Permissions::from_mode(0o644)).unwrap();

    let mut command = Command::new("unshare");
    let script = "for folder in /usr /etc; do mount --bind $folder $folder && mount -o remount,bind,ro $folder || exit 99; done; \
                  exec setpriv \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", "--inh-caps", "-all", "--bounding-set"]);
    command
        .arg(format!("-all{}", kept.concat()))
        .arg(stentor_deliver())
        .arg("--config")
        .arg(helper.path("deliver.toml"));
    helper.run_as(command);
    let send = |service: &str, to: &str| helper.connect(service).send_one(to, "Subject: x\r\n");
    assert_eq!(send("local", "games@x.example"), "250 2.0.0 Delivered to Maildir");
    assert_eq!(send("spool", "games@x.example"), "250 2.0.0 Delivered to mbox");
    assert_eq!(send("slow", "a@x.example"), "451 4.3.0 Command failed: timed out after 1 s");
    let rights = send("rights", "a@x.example");
    assert!(rights.contains("NoNewPrivs: 0"), "{rights}");
    assert!(rights.contains("Read-only file system"), "the unit's folders: {rights}");
    assert_eq!(send("aliases", "crew=0123456789abcdef@x.example"), "250 2.0.0 Delivered to command /bin/true");
    assert_eq!(mails(&folder.join("Maildir")).len(), 1);
}
