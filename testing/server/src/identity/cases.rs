//! The cases.

use super::{GoodDomain, SeededFault, World};

const SPF: &str = "ip4:203.0.113.7 include:_spf.example.net -all";
const EHLO: &str = "address = \"203.0.113.7\"\n";

const fn fault(check: &'static str, change: fn(&mut World)) -> SeededFault {
    SeededFault { check, change }
}

/// Faults, each a change to the good domain.
pub const FAULTS: &[SeededFault] = &[
    // The source address.
    fault("ptr_missing", |world| world.zone("7.113.0.203.in-addr.arpa PTR mail.example.org", "")),
    fault("ptr_unconfirmed", |world| world.zone("PTR mail.example.org", "PTR host.example.com")),
    fault("ptr_unconfirmed", |world| {
        world.zone("PTR mail.example.org", "PTR host.example.com");
        world.add("host.example.com A 203.0.113.8");
    }),
    fault("ptr_generic", |world| {
        world.zone("PTR mail.example.org", "PTR 203-0-113-7.isp.example");
        world.add("203-0-113-7.isp.example A 203.0.113.7");
    }),
    fault("helo_name", |world| world.config(EHLO, "address = \"203.0.113.7\"\nehlo_name = \"mail.localdomain\"\n")),
    fault("helo_unresolved", |world| {
        world.config(EHLO, "address = \"203.0.113.7\"\nehlo_name = \"out.example.org\"\n");
    }),
    fault("helo_address", |world| {
        world.config(EHLO, "address = \"203.0.113.7\"\nehlo_name = \"out.example.org\"\n");
        world.add("out.example.org A 203.0.113.9\nout.example.org TXT v=spf1 ip4:203.0.113.7 -all");
    }),
    fault("helo_ptr", |world| {
        world.config(EHLO, "address = \"203.0.113.7\"\nehlo_name = \"out.example.org\"\n");
        world.add("out.example.org A 203.0.113.7\nout.example.org TXT v=spf1 a -all");
    }),
    fault("block_list", |world| world.add("7.113.0.203.bl.example A 127.0.0.2")),
    // SPF.
    fault("spf_helo", |world| world.zone("mail.example.org TXT v=spf1 a -all", "")),
    fault("spf_missing", |world| world.zone("example.org TXT v=spf1 ip4", "example.org TXT spf1 ip4")),
    fault("spf_several", |world| world.add("example.org TXT v=spf1 mx -all")),
    fault("spf_syntax", |world| world.zone(SPF, "ip4=203.0.113.7 ipv4:203.0.113.7 -all")),
    fault("spf_syntax", |world| world.zone("v=spf1 ip4:198.51.100.0/24", "v=spf1 ip4:198.51.100.0/33")),
    fault("spf_include", |world| world.zone("_spf.example.net TXT v=spf1 ip4:198.51.100.0/24 ~all", "")),
    fault("spf_loop", |world| world.zone("ip4:198.51.100.0/24 ~all", "include:example.org ~all")),
    fault("spf_lookups", |world| {
        let terms: String = (0..11).map(|n| format!(" a:h{n}.example.net")).collect();
        world.zone(SPF, &format!("ip4:203.0.113.7{terms} -all"));
        (0..11).for_each(|n| world.add(&format!("h{n}.example.net A 198.51.100.1")));
    }),
    fault("spf_void", |world| {
        world.zone(SPF, "a:n1.example.net ip4:203.0.113.7 mx:n2.example.net exists:n3.example.net -all");
    }),
    fault("spf_mx", |world| {
        world.zone(SPF, "ip4:203.0.113.7 mx:many.example.net -all");
        (0..11).for_each(|n| world.add(&format!("many.example.net MX {n} mx{n}.example.net")));
    }),
    fault("spf_source", |world| world.zone(SPF, "ip4:203.0.113.8 include:_spf.example.net -all")),
    fault("spf_source", |world| world.zone(SPF, "-ip4:203.0.113.0/28 ip4:203.0.113.7 -all")),
    fault("spf_pass_all", |world| world.zone(SPF, "ip4:203.0.113.7 +all")),
    fault("spf_pass_all", |world| world.zone("ip4:198.51.100.0/24 ~all", "ip4:0.0.0.0/0 ~all")),
    fault("spf_open", |world| world.zone(SPF, "ip4:203.0.113.7")),
    fault("spf_ptr", |world| world.zone(SPF, "ip4:203.0.113.7 ptr:example.org -all")),
    // DKIM.
    fault("dkim_unsigned", |world| {
        world.config("[[dkim]]\ndomain = \"example.org\"\nselector = \"s1\"\nkey = \"rsa.pem\"\n", "");
    }),
    fault("dkim_missing", |world| world.zone("s1._domainkey", "s2._domainkey")),
    fault("dkim_several", |world| world.add("s1._domainkey.example.org TXT @OTHER@")),
    fault("dkim_syntax", |world| world.zone("TXT @RSA@", "TXT v=DKIM1; k=rsa")),
    fault("dkim_revoked", |world| world.zone("TXT @RSA@", "TXT v=DKIM1; k=rsa; p=")),
    fault("dkim_type", |world| world.zone("TXT @RSA@", "TXT @ED@")),
    fault("dkim_key", |world| world.zone("TXT @RSA@", "TXT @OTHER@")),
    fault("dkim_hash", |world| world.zone("@RSA@", "@RSA@; h=sha1")),
    fault("dkim_service", |world| world.zone("@RSA@", "@RSA@; s=tlsrpt")),
    fault("dkim_testing", |world| world.zone("@RSA@", "@RSA@; t=y")),
    fault("dkim_tag", |world| world.zone("@RSA@", "@RSA@; foo=1")),
    fault("dkim_rsa", |world| {
        world.config("rsa.pem", "ed.pem");
        world.zone("@RSA@", "@ED@");
    }),
    // DMARC.
    fault("dmarc_missing", |world| world.zone("_dmarc.example.org TXT v=DMARC1", "_dmarc.example.org TXT DMARC1")),
    fault("dmarc_several", |world| world.add("_dmarc.example.org TXT v=DMARC1; p=none")),
    fault("dmarc_syntax", |world| world.zone("p=reject", "p=rejected")),
    fault("dmarc_policy", |world| world.zone("p=reject", "p=none")),
    fault("dmarc_test", |world| world.zone("p=reject", "p=reject; pct=20")),
    fault("dmarc_reports", |world| world.zone("; rua=mailto:dmarc@example.org,mailto:org@reports.example", "")),
    fault("dmarc_rua", |world| world.zone("rua=mailto:dmarc@", "rua=dmarc@")),
    fault("dmarc_external", |world| world.zone("example.org._report._dmarc.reports.example TXT v=DMARC1", "")),
    fault("dmarc_rua_unknown", |world| world.zone("rua=mailto:dmarc@", "rua=mailto:dmarc-reports@")),
    fault("dmarc_rua_unknown", |world| {
        world.config("[aliases]", "[dmarc_reports]\naddress = \"dmarc@example.org\"\n[aliases]");
        world.zone("rua=mailto:dmarc@", "rua=mailto:dmarc@example.org,mailto:postmaster2@");
    }),
    fault("dmarc_rua_other", |world| {
        world.config("[aliases]", "[dmarc_reports]\naddress = \"kept@example.org\"\n[aliases]");
        world.config("[aliases]", "[aliases]\n\"kept@example.org\" = \"reports@elsewhere.example\"");
    }),
    fault("dmarc_own_source", |world| world.report(2, "203.0.113.7", 1_000, 960)),
    fault("dmarc_own_source", |world| {
        // Another address of the HELO name.
        world.add("mail.example.org A 203.0.113.8");
        (1..5).for_each(|day| world.report(day, "203.0.113.8", 5, 0));
    }),
    fault("dmarc_raise", |world| {
        world.zone("p=reject", "p=none");
        (1..40).for_each(|day| world.report(day, "203.0.113.7", 100, 100));
    }),
    fault("spf_alignment", |world| {
        let bounces = "address = \"news@example.org\"\nbounces = \"news-bounces@example.com\"\n";
        world.config("address = \"news@example.org\"\n", bounces);
        world.add("example.com MX 10 mail.example.org\nexample.com TXT v=spf1 redirect=example.org");
    }),
    // Mail to the domain.
    fault("mx_missing", |world| world.zone("example.org MX 10 mail.example.org", "")),
    fault("mx_null", |world| world.zone("MX 10 mail.example.org", "MX 0 .")),
    fault("mx_host", |world| world.add("example.org MX 20 backup.example.org")),
    fault("sts_missing", |world| world.zone("_mta-sts.example.org TXT v=STSv1; id=1", "")),
    fault("sts_record", |world| world.zone("v=STSv1; id=1", "v=STSv1; id=2026-11-30")),
    fault("sts_policy", |world| world.policy = world.policy.replace("max_age", "age")),
    fault("sts_mx", |world| world.policy = world.policy.replace("*.example.org", "mx.example.org")),
    fault("sts_mode", |world| world.policy = world.policy.replace("enforce", "testing")),
    fault("tlsrpt_missing", |world| {
        world.zone("_smtp._tls.example.org TXT v=TLSRPTv1; rua=mailto:tls@example.org", "");
    }),
    fault("tlsrpt_record", |world| world.zone("v=TLSRPTv1; rua=mailto:tls@", "v=TLSRPTv1; rua=tls@")),
    // The message.
    fault("message_field", |world| world.message("Subject: News", "Date: Mon, 30 Nov 2026 10:00:01 +0000")),
    fault("message_from", |world| {
        world.message("From: Ann <ann@example.org>", "From: Ann <ann@example.org>, Bob <bob@example.org>");
        // Without one author the domains are those of the configuration.
    }),
    fault("unsubscribe", |world| world.message("List-Unsubscribe:", "X-Unsubscribe:")),
    fault("one_click", |world| world.message("List-Unsubscribe-Post:", "X-Post:")),
    fault("one_click", |world| world.message("<https://lists.example.org:@WEB@/unsubscribe/1>, ", "")),
    fault("unsubscribe_link", |world| "www.example.org".clone_into(&mut world.certificate)),
];

const fn good(name: &'static str, change: fn(&mut World)) -> GoodDomain {
    GoodDomain { name, change }
}

/// Domains without a fault.
pub const GOOD: &[GoodDomain] = &[
    good("the one that the faults change", |_| {}),
    good("SPF by MX hosts and redirect, in capitals", |world| {
        world.zone(SPF, "REDIRECT=_own.example.org");
        world.add("_own.example.org TXT V=SPF1 MX:example.org/32  ip6:2001:db8::/32 ~ALL");
    }),
    good("SPF with macros, ten look-ups and two that find nothing", |world| {
        let terms: String = (0..6).map(|n| format!(" a:h{n}.example.net")).collect();
        let exists = "exists:%{ir}.%{v}.own.example.org mx a:n1.example.net a:n2.example.net";
        world.zone(SPF, &format!("{exists}{terms} exp=e.example.org -all"));
        world.add("7.113.0.203.in-addr.own.example.org A 127.0.0.2");
        (0..6).for_each(|n| world.add(&format!("h{n}.example.net A 198.51.100.1")));
    }),
    good("return paths below the domain", |world| {
        let bounces = "address = \"news@example.org\"\nbounces = \"news@bounces.example.org\"\n";
        world.config("address = \"news@example.org\"\n", bounces);
        world.add("bounces.example.org MX 10 mail.example.org\nbounces.example.org TXT v=spf1 ip4:203.0.113.0/29 -all");
    }),
    good("lists below the domain, which has the keys and the policy", |world| {
        world.config("news@example.org", "news@lists.example.org");
        world.message("ann@example.org", "ann@lists.example.org");
        world.zone("p=reject", "p=none; sp=quarantine");
        world.add(
            "lists.example.org MX 10 mail.example.org\nlists.example.org TXT v=spf1 a:mail.example.org -all\n\
             _mta-sts.lists.example.org TXT v=STSv1; id=1\nmta-sts.lists.example.org A 127.0.0.1\n\
             _smtp._tls.lists.example.org TXT v=TLSRPTv1;rua=https://reports.example/tls",
        );
    }),
    good("keys of both kinds, with white space and notes", |world| {
        world.config("key = \"rsa.pem\"\n", "key = \"rsa.pem\"\nsecond_selector = \"s2\"\nsecond_key = \"ed.pem\"\n");
        world.zone("@RSA@", "@RSA@ ; t=s; s=email:*; h=sha1:sha256; n=hello");
        world.add("s2._domainkey.example.org TXT @ED@;");
    }),
    good("keys and policies at a provider", |world| {
        world.zone("s1._domainkey.example.org TXT", "key.provider.example TXT");
        world.add("s1._domainkey.example.org CNAME key.provider.example");
        world.zone("_mta-sts.example.org TXT", "sts.provider.example TXT");
        world.add("_mta-sts.example.org CNAME sts.provider.example");
    }),
    good("IPv4 and IPv6", |world| {
        world.config("address = \"203.0.113.7\"", "address = [\"203.0.113.7\", \"2001:db8::7\"]");
        let nibbles = "7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa";
        world.add(&format!("{nibbles} PTR mail.example.org\nmail.example.org AAAA 2001:db8::7"));
        world.zone(SPF, "ip4:203.0.113.7 ip6:2001:db8::7 -all");
    }),
    good("several names of the address, one of them generic", |world| {
        world.add("7.113.0.203.in-addr.arpa PTR 203-0-113-7.isp.example\n203-0-113-7.isp.example A 203.0.113.7");
        world.add("7.113.0.203.in-addr.arpa PTR none.example.org");
    }),
    good("strict DMARC, psd=n, reports only to itself", |world| {
        world.zone("v=DMARC1; p=reject;", "v=DMARC1;p=quarantine; adkim=s; aspf=s; psd=n; fo=1;");
        world.zone(",mailto:org@reports.example", "!10m, mailto:x@sub.example.org");
    }),
    good("reports that come here, of failures long ago, of others and of few messages", |world| {
        world.config("[aliases]", "[dmarc_reports]\naddress = \"dmarc@example.org\"\n[aliases]");
        world.report(9, "203.0.113.7", 1_000, 0);
        world.report(2, "198.51.100.9", 1_000, 0);
        world.report(1, "203.0.113.7", 1_000, 990);
    }),
    good("reports to an address at another server for the domain's mail", |world| {
        world.zone("rua=mailto:dmarc@", "rua=mailto:reports@");
        world.zone("example.org MX 10 mail.example.org", "example.org MX 10 mx.example.org");
        world.add("mx.example.org A 203.0.113.99");
    }),
    good("several MX hosts, two lists, other records", |world| {
        world.add("example.org MX 20 mx2.example.org\nmx2.example.org AAAA 2001:db8::2");
        world.add("_dmarc.example.org TXT something else\n_smtp._tls.example.org TXT other");
        world.config(
            "[lists.news]",
            "[lists.two]\naddress = \"two@example.org\"\nsubscribers = \"news.subscribers\"\n[lists.news]",
        );
    }),
];
