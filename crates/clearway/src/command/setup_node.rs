//! Writes the script with which an administrator gives classes to programs that know nothing of
//! them, and keeps the marks of all programs to the policy of the site.
//!
//! # Model
//! Two rules of the kernel's packet filter: the first marks packets that match, the second gives
//! every packet that carries a class's mark that class's priority in the node's own queues,
//! whichever program marked it. The second also mends a trap: a program that sets `IP_TOS` gets its
//! priority by a table of 1992 that knows no code points, so that EF waits behind everything else.
//!
//! Marks that a user asks for without privilege (`clearway-ofi`) miss the opening of a TCP
//! connection and what an accepting side sends before it gets the request; `tcp_reflect_tos` lets
//! it answer with the mark of the opening packet.
//!
//! # Source
//! `nft(8)`; `ip-sysctl` of the kernel's documentation;
//! `Documentation/ABI/stable/sysfs-class-infiniband` and `rdma_cm`'s configfs; libfabric's
//! `fi_opx(7)`, `fi_psm3(7)`.
//!
//! # Invariants
//! I1. No word of the command line gets into the script but those that [`MarkRule`] accepted.
//! I2. The script can be run again, and changes nothing of the machine's own rules.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use anyhow::Result;
use clearway_proto::base::Class;

use super::print;
use crate::policy::{OwnerLimit, SitePolicy, is_account, read};
use crate::run::exit::Exit;

/// Where the kernel lists RDMA devices.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// Which packets get which class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkRule {
    packets: PacketMatch,
    class: Class,
}

/// What packets are recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PacketMatch {
    /// Either port, TCP or UDP, from the first to the last.
    Port(u16, u16),
    /// The owner of the socket.
    User(String),
    /// The sending address.
    Source(IpAddr),
}

impl FromStr for MarkRule {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (packets, class) =
            text.rsplit_once('=').ok_or("it needs packets and a class: port:2049=bulk")?;
        let class = class.parse().map_err(|error| format!("`{class}` is {error}"))?;
        Ok(Self { packets: packets.parse()?, class })
    }
}

impl FromStr for PacketMatch {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("port", ports)) => {
                let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
                let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
                match (port(first), port(last)) {
                    (Some(first), Some(last)) if first <= last => Ok(Self::Port(first, last)),
                    _ => Err(format!(
                        "`{ports}` is no port and no range of ports; 2049 and 5000-5099 are"
                    )),
                }
            }
            Some(("user", name)) => {
                if is_account(name) {
                    Ok(Self::User(name.to_owned()))
                } else {
                    Err(format!("`{name}` is no name of a user"))
                }
            }
            Some(("source", address)) => address
                .parse()
                .map(Self::Source)
                .map_err(|_| format!("`{address}` is no address; 10.1.0.7 is")),
            _ => Err(format!("`{text}` names no packets; port:N, user:NAME and source:ADDRESS do")),
        }
    }
}

/// Prints the script.
///
/// # Errors
/// One sentence: the policy cannot be read, or is wrong.
pub(super) fn command(marks: &[MarkRule], policy: Option<&Path>) -> Result<Exit> {
    let policy = policy.map(read).transpose()?;
    let limits = policy.as_ref().map(|policy| limits(policy, &members));
    let ports = rdma_ports(Path::new(RDMA_DEVICES));
    print(&script(marks, &limits.unwrap_or_default(), &ports))?;
    Ok(Exit::Good)
}

/// Prints the script that takes it back.
pub(super) fn undo() -> Result<Exit> {
    print(
        "#!/bin/sh\n# Made by `clearway setup-node --undo`; run it as root.\nset -eu\n\
         nft 'table inet clearway; delete table inet clearway'\n\
         sysctl -w net.ipv4.tcp_reflect_tos=0   # the kernel's default\n",
    )?;
    Ok(Exit::Good)
}

fn script(marks: &[MarkRule], limits: &[String], ports: &[RdmaPort]) -> String {
    let mut text = String::from(
        "#!/bin/sh\n\
         # Made by `clearway setup-node`. Read it, then run it as root, on every node. It holds until the next start of the\n\
         # machine; `clearway setup-node --undo` prints what takes it back.\n\
         set -eu\n\n\
         # Who accepts a TCP connection answers with the mark of its opening packet (Linux 5.10).\n\
         sysctl -w net.ipv4.tcp_reflect_tos=1\n\n\
         # A table of its own, made anew each time.\n\
         nft -f - <<'RULES'\n\
         table inet clearway\n\
         delete table inet clearway\n",
    );
    text += &table(marks, limits);
    text += "RULES\n";
    for port in ports {
        text += &port.advice();
    }
    text
}

/// Returns the rules that keep marks to a policy, for `nft`.
pub(super) fn policy_rules(policy: &SitePolicy) -> String {
    table(&[], &limits(policy, &members))
}

/// Returns the table.
fn table(marks: &[MarkRule], limits: &[String]) -> String {
    let mut text = String::from("table inet clearway {\n");
    if !limits.is_empty() {
        text += "\t# No more urgent class than the policy grants to the owner of a socket. The first match counts.\n\
                 \tchain limits {\n\t\ttype route hook output priority mangle - 1;\n";
        limits.iter().for_each(|rule| text += &format!("\t\t{rule}\n"));
        text += "\t}\n";
    }
    if !marks.is_empty() {
        text += "\t# Marks, whatever the program asked for.\n\tchain marks {\n\t\ttype route hook output priority mangle;\n";
        marks.iter().flat_map(MarkRule::rules).for_each(|rule| text += &format!("\t\t{rule}\n"));
        text += "\t}\n";
    }
    text += "\t# This node's own queues serve packets by the class in their mark, whichever program set it.\n\
             \tchain service {\n\t\ttype filter hook postrouting priority mangle + 10;\n";
    for family in ["ip", "ip6"] {
        let entry = |class: &Class| format!("{} : 0:{}", class.dscp().0, class.host_priority());
        let marked = Class::ALL.iter().filter(|class| class.dscp() != Class::BestEffort.dscp());
        let map: Vec<String> = marked.map(entry).collect();
        let _ = writeln!(text, "\t\tmeta priority set {family} dscp map {{ {} }}", map.join(", "));
    }
    text + "\t}\n}\n"
}

/// Returns the members of a group that this host knows, besides those whose first group it is.
fn members(group: &str) -> Vec<String> {
    nix::unistd::Group::from_name(group).ok().flatten().map_or_else(Vec::new, |group| group.mem)
}

/// Returns the rules that limit the classes of packets by the owner of their socket, where `members`
/// knows who is of a group.
fn limits(policy: &SitePolicy, members: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    policy.owner_limits().iter().flat_map(|limit| limit_rules(limit, members)).collect()
}

/// Returns the rules of one limit.
fn limit_rules(limit: &OwnerLimit, members: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let OwnerLimit { users, groups, class, rule } = limit;
    let set = |names: &[String]| format!("{{ \"{}\" }}", names.join("\", \""));
    let of_users = |users: &[String]| format!("meta skuid {}", set(users));
    // A socket has one group, and its owner may be of others.
    let named: Vec<String> = groups.iter().flat_map(|group| members(group)).collect();
    let is_meant = |name: &String| is_account(name) && (users.is_empty() || users.contains(name));
    let named: Vec<String> = named.into_iter().filter(is_meant).collect();
    let mut owners = match (users.is_empty(), groups.is_empty()) {
        // Packets that no socket sent have the marks of the kernel.
        (true, true) => vec!["meta skuid 0-4294967294".to_owned()],
        (false, true) => vec![of_users(users)],
        (true, false) => vec![format!("meta skgid {}", set(groups))],
        (false, false) => vec![format!("{} meta skgid {}", of_users(users), set(groups))],
    };
    if !named.is_empty() {
        owners.push(of_users(&named));
    }
    let urgent = Class::ALL.iter().filter(|urgent| *urgent < class);
    let urgent: Vec<String> = urgent.map(|class| class.dscp().0.to_string()).collect();
    let lower = |owner: &String, family: &str| {
        let (urgent, mark) = (urgent.join(", "), class.dscp().0);
        format!("{owner} {family} dscp {{ {urgent} }} {family} dscp set {mark}")
    };
    let number = rule.map_or_else(|| "none".to_owned(), |rule| rule.to_string());
    let mut rules = vec![format!("# Rule {number}: {class}")];
    for owner in &owners {
        if !urgent.is_empty() {
            rules.extend(["ip", "ip6"].map(|family| lower(owner, family)));
        }
        rules.push(format!("{owner} return"));
    }
    rules
}

impl MarkRule {
    fn rules(&self) -> Vec<String> {
        let dscp = self.class.dscp().0;
        let set = |matching: &str, family: &str| format!("{matching} {family} dscp set {dscp}");
        let either = |matching: &str| [set(matching, "ip"), set(matching, "ip6")];
        match &self.packets {
            PacketMatch::Port(first, last) => {
                let ports =
                    if first == last { first.to_string() } else { format!("{first}-{last}") };
                let side =
                    |side: &str| either(&format!("meta l4proto {{ tcp, udp }} th {side} {ports}"));
                [side("dport"), side("sport")].concat()
            }
            PacketMatch::User(name) => either(&format!("meta skuid \"{name}\"")).into(),
            PacketMatch::Source(address @ IpAddr::V4(_)) => {
                vec![set(&format!("ip saddr {address}"), "ip")]
            }
            PacketMatch::Source(address @ IpAddr::V6(_)) => {
                vec![set(&format!("ip6 saddr {address}"), "ip6")]
            }
        }
    }
}

/// A port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RdmaPort {
    device: String,
    port: String,
    /// `Ethernet` or `InfiniBand`, as the kernel says.
    layer: String,
}

/// Returns all ports below `devices`; none where there is no RDMA.
fn rdma_ports(devices: &Path) -> Vec<RdmaPort> {
    let names = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        // Others than plain names are nobody's device, and must not get into a script.
        let name = |entry: fs::DirEntry| {
            entry.file_name().into_string().ok().filter(|name| is_plain(name))
        };
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        names
    };
    let ports_of = |device: String| {
        let ports = devices.join(&device).join("ports");
        let layer = |port: &str| {
            fs::read_to_string(ports.join(port).join("link_layer")).unwrap_or_default()
        };
        let port = |port: String| RdmaPort {
            layer: layer(&port).trim().to_owned(),
            device: device.clone(),
            port,
        };
        names(&ports).into_iter().map(port).collect::<Vec<_>>()
    };
    names(devices).into_iter().flat_map(ports_of).collect()
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

impl RdmaPort {
    /// Returns what can be done for it, as comments: each of it is for all programs on the port.
    fn advice(&self) -> String {
        let Self { device, port, layer } = self;
        let tos = Class::Bulk.dscp().tos();
        let lines = if device.starts_with("hfi1") {
            "One class for each process, by its environment: FI_OPX_SL for libfabric's opx.\n"
                .to_owned()
        } else if layer == "Ethernet" {
            format!(
                "No program can choose a class for libfabric's verbs. For all that connect by RDMA-CM, here as bulk:\n\
                 mkdir -p /sys/kernel/config/rdma_cm/{device}\n\
                 echo {tos} > /sys/kernel/config/rdma_cm/{device}/ports/{port}/default_roce_tos\n\
                 For everything on the port, whatever programs ask for:\n\
                 echo {tos} > /sys/class/infiniband/{device}/tc/{port}/traffic_class\n\
                 psm3 has one class for each process, by its environment: PSM3_NIC_SL.\n"
            )
        } else {
            "The subnet manager gives service levels: quality-of-service rules by service id in OpenSM's policy file.\n\
             psm3 has one for each process, by its environment: PSM3_NIC_SL.\n"
                .to_owned()
        };
        let head = format!("\n# {device}, port {port}, {layer}. Nothing is done here:\n");
        lines.lines().fold(head, |text, line| text + "#   " + line + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        text.parse::<MarkRule>().expect_err(text)
    }

    #[test]
    fn mark__what_is_no_rule_is_refused_with_what_would_be() {
        assert_eq!(refusal("port:2049"), "it needs packets and a class: port:2049=bulk");
        assert_eq!(
            refusal("ports:1=bulk"),
            "`ports:1` names no packets; port:N, user:NAME and source:ADDRESS do"
        );
        for ports in ["0", "70000", "9-3", "", "1-", "x"] {
            assert!(
                refusal(&format!("port:{ports}=bulk")).contains("2049 and 5000-5099 are"),
                "{ports}"
            );
        }
        assert!(
            refusal("port:1=fast")
                .contains("`fast` is not a traffic class; the classes are control")
        );
        assert!(refusal("source:host1=bulk").contains("is no address"));
    }

    #[test]
    fn mark__no_word_can_leave_its_place_in_the_script() {
        for name in [
            "a\"; flush ruleset; \"",
            "a\nRULES\nreboot",
            "$(reboot)",
            "`reboot`",
            "",
            "-x",
            "a b",
            &"x".repeat(33),
        ] {
            assert!(refusal(&format!("user:{name}=bulk")).contains("no name of a user"), "{name}");
        }
    }

    #[test]
    fn script__serves_every_marked_class_and_marks_both_families() {
        let marks = ["port:5000-5099=low-latency", "user:backup=scavenger", "source:fd00::1=bulk"];
        let text = script(&marks.map(|text| text.parse().expect(text)), &[], &[]);
        for line in [
            "meta priority set ip dscp map { 48 : 0:6, 46 : 0:6, 8 : 0:2, 1 : 0:1 }",
            "meta l4proto { tcp, udp } th dport 5000-5099 ip dscp set 46",
            "meta l4proto { tcp, udp } th sport 5000-5099 ip6 dscp set 46",
            "meta skuid \"backup\" ip dscp set 1",
            "ip6 saddr fd00::1 ip6 dscp set 8",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            !script(&[], &[], &[]).contains("chain marks")
                && !script(&[], &[], &[]).contains("chain limits")
        );
    }

    #[test]
    fn limits__owners_keep_what_is_granted_and_members_of_groups_are_users() {
        let text = "[[rule]]\nuser = \"root\"\nclass = \"control\"\n[[rule]]\ngroup = \"daq\"\nclass = \"low-latency\"\n\
                    [[rule]]\nuser = [\"a\", \"b\"]\ngroup = \"g\"\nclass = \"scavenger\"\n";
        let policy = crate::policy::read_text("site.toml", text).expect("a policy");
        let members = |_: &str| ["b", "c", "x\"; flush ruleset"].map(str::to_owned).to_vec();
        let expected = [
            "# Rule 1: control",
            "meta skuid { \"root\" } return",
            "# Rule 2: low-latency",
            "meta skgid { \"daq\" } ip dscp { 48 } ip dscp set 46",
            "meta skgid { \"daq\" } ip6 dscp { 48 } ip6 dscp set 46",
            "meta skgid { \"daq\" } return",
            "meta skuid { \"b\", \"c\" } ip dscp { 48 } ip dscp set 46",
            "meta skuid { \"b\", \"c\" } ip6 dscp { 48 } ip6 dscp set 46",
            "meta skuid { \"b\", \"c\" } return",
            "# Rule 3: scavenger",
            "meta skuid { \"a\", \"b\" } meta skgid { \"g\" } ip dscp { 48, 46, 0, 8 } ip dscp set 1",
        ];
        let found = limits(&policy, &members);
        assert_eq!(&found[..expected.len()], expected);
        let everybody = "meta skuid 0-4294967294 ip dscp { 48, 46 } ip dscp set 0";
        assert!(found.iter().any(|rule| rule == everybody), "{found:?}");
    }

    #[test]
    fn rdma_ports__are_advised_by_what_they_are_and_only_in_comments() {
        let devices = std::env::temp_dir().join(format!("clearway-rdma-{}", std::process::id()));
        for (device, port, layer) in
            [("mlx5_0", "1", "Ethernet\n"), ("mlx5_1", "1", "InfiniBand\n"), ("$(reboot)", "1", "")]
        {
            let port = devices.join(device).join("ports").join(port);
            fs::create_dir_all(&port).expect("made");
            fs::write(port.join("link_layer"), layer).expect("written");
        }
        let ports = rdma_ports(&devices);
        assert_eq!(
            ports.iter().map(|port| port.device.as_str()).collect::<Vec<_>>(),
            ["mlx5_0", "mlx5_1"]
        );
        let with = script(&[], &[], &ports);
        assert!(with.contains("default_roce_tos") && with.contains("OpenSM"), "{with}");
        let added = with.strip_prefix(&script(&[], &[], &[])).expect("advice comes last");
        assert!(added.lines().all(|line| line.is_empty() || line.starts_with('#')), "{added}");
        fs::remove_dir_all(&devices).expect("removed");
        assert_eq!(rdma_ports(&devices), []);
    }
}
