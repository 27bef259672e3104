//! The script of `setup-node`, run in a virtual host, does what it says: seen by the counters of
//! the packet filter on both sides.

use crate::virtual_hosts::{VirtualHosts, clearway, counters, text};

/// The packets of the counter behind `matching` in a listed table.
fn counted(listing: &str, matching: &str) -> u64 {
    let line = listing
        .lines()
        .find(|line| line.contains(matching))
        .unwrap_or_else(|| panic!("{matching}\n{listing}"));
    *counters(line).first().unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn setup_node__marks_and_serves_and_is_taken_back() {
    let Some(lab) = VirtualHosts::new(2, &["nft", "sysctl", "bash"]) else { return };
    lab.shell(
        "h1",
        "nft -f - <<'E'\ntable ip seen {\n chain in {\n type filter hook input priority 0;\n udp dport 5555 ip dscp cs1 counter\n udp \
         dport 6666 ip dscp cs0 counter\n }\n}\nE\n",
    );
    lab.shell(
        "h0",
        "nft -f - <<'E'\ntable ip seen {\n chain out {\n type filter hook postrouting priority 300;\n meta priority 0:2 counter\n }\n}\nE\n",
    );
    let setup = clearway(&["setup-node", "--mark", "port:5555=bulk"]);
    assert!(setup.status.success());
    let send = "for port in 5555 6666; do for i in 1 2 3; do echo x > /dev/udp/10.77.0.2/$port; done; done\n";
    // Twice: what is there already is made anew.
    lab.shell("h0", &text(&setup.stdout));
    lab.shell("h0", &text(&setup.stdout));
    lab.shell("h0", send);
    let (sent, arrived) =
        (lab.shell("h0", "nft list table ip seen"), lab.shell("h1", "nft list table ip seen"));
    assert_eq!(counted(&sent, "meta priority"), 3, "{sent}");
    assert_eq!((counted(&arrived, "5555"), counted(&arrived, "6666")), (3, 3), "{arrived}");
    lab.shell("h0", &text(&clearway(&["setup-node", "--undo"]).stdout));
    lab.shell("h0", send);
    let arrived = lab.shell("h1", "nft list table ip seen");
    assert_eq!((counted(&arrived, "5555"), counted(&arrived, "6666")), (3, 6), "{arrived}");
}

#[test]
fn setup_node__owners_of_sockets_send_no_more_urgent_class_than_granted() {
    let Some(lab) = VirtualHosts::new(2, &["nft", "sysctl", "bash"]) else { return };
    let own = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let own = own.ok().flatten().map_or_else(|| "root".to_owned(), |user| user.name);
    let file = std::env::temp_dir().join(format!("clearway-limits-{}.toml", std::process::id()));
    let rules = format!(
        "[[rule]]\nuser = \"nobody\"\nclass = \"control\"\n[[rule]]\nuser = \"{own}\"\nclass = \"bulk\"\n"
    );
    std::fs::write(&file, rules).expect("written");
    let path = file.display().to_string();
    let marks = ["--mark", "port:6666=low-latency"];
    let setup = clearway(&[&["setup-node", "--policy", &path][..], &marks].concat());
    std::fs::remove_file(&file).expect("removed");
    assert!(setup.status.success(), "{}", text(&setup.stderr));
    lab.shell(
        "h1",
        "nft -f - <<'E'\ntable ip seen {\n chain in {\n type filter hook input priority 0;\n udp dport 5555 ip dscp cs1 counter\n udp \
         dport 6666 ip dscp ef counter\n }\n}\nE\n",
    );
    // Twice: what is there already is made anew.
    lab.shell("h0", &text(&setup.stdout));
    lab.shell("h0", &text(&setup.stdout));
    lab.shell(
        "h0",
        "for port in 5555 6666; do for i in 1 2 3; do echo x > /dev/udp/10.77.0.2/$port; done; done\n",
    );
    let arrived = lab.shell("h1", "nft list table ip seen");
    let both = (counted(&arrived, "5555"), counted(&arrived, "6666"));
    assert_eq!(both, (3, 3), "an administrator's mark is not limited: {arrived}");
    let wrong = clearway(&["setup-node", "--policy", "/no/such/site.toml"]);
    assert_eq!((wrong.status.code(), text(&wrong.stdout)), (Some(1), String::new()));
}
