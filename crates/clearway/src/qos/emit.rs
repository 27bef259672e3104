//! The settings of a plan as each program reads them: text to be looked at, saved and applied by a
//! person.
//!
//! # Source
//! opensm.conf and qos-policy.conf: `doc/qos-config.txt` and `doc/QoS_management_in_OpenSM.txt` of
//! OpenSM 3.3. `tc-ets(8)`, `dcb-app(8)`, `dcb-ets(8)`, `nft(8)`. mlnx_qos, cma_roce_tos, UCX,
//! fi_efa(7) and fi_cxi(7): their own documentation; no such adapter was at hand.

use std::str::FromStr;

use clap::ValueEnum;
use clearway_proto::base::Class;
use clearway_runtime::launch::excerpt;
use clearway_sim::spec::qos::{LOW_CLASSES, LowShares, PLAN_LANES, QosPlan};

use super::{PORT, level};

/// What reads the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EmitTarget {
    /// Lines of opensm.conf.
    Opensm,
    /// OpenSM's qos-policy.conf: a level for the port of each class.
    Policy,
    /// tc: the queues of a host's Ethernet interface.
    Tc,
    /// dcb: priorities and shares of an Ethernet adapter.
    Dcb,
    /// mlnx_qos and cma_roce_tos: the same with NVIDIA's programs.
    Mlnx,
    /// libfabric on Slingshot.
    Cxi,
    /// libfabric on EFA.
    Efa,
    /// Variables of UCX.
    Ucx,
    /// nft: code points on packets that leave a host.
    Nft,
}

/// The longest name of an interface: `IFNAMSIZ` of the kernel's `linux/if.h`, less the byte at the
/// end.
const INTERFACE_BYTES_MAX: usize = 15;

/// The name of an interface, which stands as it is in commands of a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceName(String);

impl FromStr for InterfaceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.@+".contains(c);
        let is_usable = (1..=INTERFACE_BYTES_MAX).contains(&text.len())
            && text.chars().all(is_plain)
            && !text.starts_with('-')
            && !matches!(text, "." | "..");
        if is_usable {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "'{}' cannot be the name of an interface in a command; 1 to {INTERFACE_BYTES_MAX} letters, digits and _-.@+ can, as in enp3s0f0",
            excerpt(text)
        ))
    }
}

/// Kinds of ports that get the same tables.
const PORTS: [&str; 3] = ["ca", "swe", "sw0"];
/// Service ids of rdma_cm: TCP ports are above this number (RFC 5046's successor in the InfiniBand
/// annex on IP addressing, A11).
const SERVICE: u64 = 0x0000_0000_0106_0000;
/// The traffic class of an Ethernet adapter for each class by its index: more is more urgent.
const TRAFFIC_CLASSES: [u8; Class::ALL.len()] = [6, 5, 2, 1, 0];
/// Bytes that a class may send in its turn, of one part.
const QUANTUM: u64 = 9_000;

/// Returns the text for `target`, of a plan with these shares; `interface` is the host's where one is
/// named in it.
pub(crate) fn emit(
    target: EmitTarget,
    (plan, shares): (&QosPlan, LowShares),
    interface: &InterfaceName,
) -> String {
    let InterfaceName(interface) = interface;
    match target {
        EmitTarget::Opensm => opensm(plan),
        EmitTarget::Policy => policy(plan),
        EmitTarget::Tc => tc(interface, shares),
        EmitTarget::Dcb => dcb(interface, shares),
        EmitTarget::Mlnx => mlnx(interface, shares),
        EmitTarget::Cxi => CXI.to_owned(),
        EmitTarget::Efa => EFA.to_owned(),
        EmitTarget::Ucx => ucx(plan),
        EmitTarget::Nft => nft(),
    }
}

/// Returns a line for each class.
fn lines(line: impl FnMut(Class) -> String) -> String {
    Class::ALL.into_iter().map(line).collect()
}

/// Returns what stands for each class, between commas.
fn commas(word: impl FnMut(Class) -> String) -> String {
    Class::ALL.into_iter().map(word).collect::<Vec<_>>().join(",")
}

fn opensm(plan: &QosPlan) -> String {
    let table = |entries: &[(u8, u8)]| {
        entries
            .iter()
            .map(|(lane, weight)| format!("{lane}:{weight}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    let levels: Vec<String> = plan.lane_of_level.iter().map(u8::to_string).collect();
    let (high, low, limit) =
        (table(&plan.tables.high), table(&plan.tables.low), plan.tables.high_limit);
    let mut text =
        "# Lines of opensm.conf; OpenSM reads it again after kill -HUP.\nqos TRUE\n".to_owned();
    for port in PORTS {
        text.push_str(&format!(
            "qos_{port}_max_vls {PLAN_LANES}\nqos_{port}_high_limit {limit}\nqos_{port}_vlarb_high {high}\nqos_{port}_vlarb_low {low}\nqos_{port}_sl2vl {}\n",
            levels.join(",")
        ));
    }
    text
}

/// Returns the service id of the port where `class` listens.
pub(super) fn service(class: Class) -> u64 {
    SERVICE + u64::from(PORT) + class.index() as u64
}

fn policy(plan: &QosPlan) -> String {
    let rule = |class: Class| {
        format!(
            "    any, service-id 0x{:016x} : {} # {class}: port {}\n",
            service(class),
            level(plan, class),
            u64::from(PORT) + class.index() as u64
        )
    };
    format!(
        "# qos-policy.conf of OpenSM (qos_policy_file). Programs that ask the subnet\n\
         # manager for a path get these levels: those of rdma_cm and IPoIB.\n\
         qos-ulps\n    default : {}\n{}end-qos-ulps\n",
        level(plan, Class::BestEffort),
        lines(rule)
    )
}

fn tc(interface: &str, shares: LowShares) -> String {
    let [best_effort, bulk, scavenger] = shares.packets();
    let filter = |class: Class| {
        let (tos, band) = (class.dscp().tos(), class.index() + 1);
        format!(
            "tc filter add dev {interface} parent 1: protocol ip prio 1 \\\n    \
             u32 match ip tos 0x{tos:02x} 0xfc flowid 1:{band}\n"
        )
    };
    let others =
        lines(|class| if class == Class::BestEffort { String::new() } else { filter(class) });
    format!(
        "# Control and low latency first, the others by {best_effort}, {bulk} and {scavenger} parts; what has\n\
         # another mark is best effort.\n\
         tc qdisc replace dev {interface} root handle 1: ets bands 5 strict 2 \\\n    \
         quanta {} {} {} priomap 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2\n{others}",
        QUANTUM * best_effort,
        QUANTUM * bulk,
        QUANTUM * scavenger,
    )
}

/// Returns for each traffic class of an adapter what `word` says of the class there, in order.
fn by_traffic_class(word: impl Fn(Option<Class>) -> String) -> Vec<String> {
    let class =
        |number: u8| Class::ALL.into_iter().find(|class| TRAFFIC_CLASSES[class.index()] == number);
    (0..8).map(|number| word(class(number))).collect()
}

/// Returns a class's percent of what strict ones leave.
fn percent(class: Option<Class>, shares: LowShares) -> u64 {
    let of = LOW_CLASSES.into_iter().zip(shares.percents());
    of.filter(|(own, _)| Some(*own) == class).map(|(_, percent)| percent).sum()
}

fn is_strict(class: Option<Class>) -> bool {
    class.is_none_or(|class| !LOW_CLASSES.contains(&class))
}

fn dcb(interface: &str, shares: LowShares) -> String {
    let numbered = |words: Vec<String>| {
        let words = words.iter().enumerate();
        words.map(|(number, word)| format!("{number}:{word}")).collect::<Vec<_>>().join(" ")
    };
    let kinds = numbered(by_traffic_class(|class| {
        if is_strict(class) { "strict".to_owned() } else { "ets".to_owned() }
    }));
    let shares = numbered(by_traffic_class(|class| percent(class, shares).to_string()));
    let own = numbered((0..8).map(|number| number.to_string()).collect());
    let mark = |class: Class| {
        let (mark, number) = (class.dscp().0, TRAFFIC_CLASSES[class.index()]);
        format!("dcb app replace dev {interface} dscp-prio {mark}:{number} # {class}\n")
    };
    format!(
        "# An adapter that trusts code points; the switches need the same map.\n{}\
         dcb ets set dev {interface} \\\n    tc-tsa {kinds} \\\n    \
         tc-bw {shares} \\\n    prio-tc {own}\n",
        lines(mark)
    )
}

fn mlnx(interface: &str, shares: LowShares) -> String {
    let kinds =
        by_traffic_class(
            |class| {
                if is_strict(class) { "strict".to_owned() } else { "ets".to_owned() }
            },
        );
    let shares = by_traffic_class(|class| percent(class, shares).to_string());
    let mark = |class: Class| {
        let (mark, number) = (class.dscp().0, TRAFFIC_CLASSES[class.index()]);
        format!("mlnx_qos -i {interface} --dscp2prio set,{mark},{number} # {class}\n")
    };
    format!(
        "mlnx_qos -i {interface} --trust dscp\n{}mlnx_qos -i {interface} -p 0,1,2,3,4,5,6,7 \\\n    -s {} \\\n    -t {}\n\
         # rdma_cm sets one code point for all connections of a device that name none:\n\
         cma_roce_tos -d DEVICE -t {}\n",
        lines(mark),
        kinds.join(","),
        shares.join(","),
        Class::Bulk.dscp().tos()
    )
}

/// What Slingshot has is chosen by programs.
const CXI: &str = "# libfabric, provider cxi (fi_cxi(7)): an endpoint names its traffic class, and\n\
    # the job's service must allow it.\n\
    #   control, low-latency  FI_TC_LOW_LATENCY\n\
    #   best-effort           FI_TC_BEST_EFFORT\n\
    #   bulk                  FI_TC_BULK_DATA\n\
    #   scavenger             FI_TC_SCAVENGER, where the fabric has it\n\
    # The profile of the fabric manager gives each class its share; hosts need no\n\
    # setting.\n";

/// EFA has one distinction.
const EFA: &str = "# libfabric, provider efa (fi_efa(7)): FI_TC_LOW_LATENCY is the only class that\n\
    # is treated apart.\n\
    # Shape bulk data in software: `clearway cast --rate`.\n";

fn ucx(plan: &QosPlan) -> String {
    let line = |class: Class| {
        format!(
            "# {class}\nUCX_IB_SL={} UCX_IB_TRAFFIC_CLASS={}\n",
            level(plan, class),
            class.dscp().tos()
        )
    };
    format!(
        "# Variables of one process: all it sends has this service level (InfiniBand)\n\
         # and traffic class (RoCE).\n{}",
        lines(line)
    )
}

fn nft() -> String {
    let line = |class: Class| {
        let (priority, mark) = (class.index() + 1, class.dscp().0);
        format!(
            "        meta mark {priority} ip dscp set {mark} # {class}\n        meta mark {priority} ip6 dscp set {mark}\n"
        )
    };
    format!(
        "# Packets of sockets with SO_MARK 1 to 5 get the code point of a class; classes:\n\
         # {}.\n\
         # The first two lines make this text take the place of an older one:\n\
         # nft -f FILE.\n\
         table inet clearway-qos\ndelete table inet clearway-qos\n\
         table inet clearway-qos {{\n    chain leaves {{\n        type route hook output priority mangle; policy accept;\n{}    }}\n}}\n",
        commas(|class| class.name().to_owned()),
        lines(line)
    )
}

#[cfg(test)]
mod tests {
    use clearway_proto::base::Bytes;
    use clearway_sim::spec::import::SourceText;
    use clearway_sim::spec::qos::{check, check_policy};

    use super::*;

    fn plan() -> QosPlan {
        QosPlan::new(Bytes(4096)).expect("a payload of ports")
    }

    #[test]
    fn opensm__what_is_written_has_no_fault() {
        for payload in [256, 2048, 4096] {
            let text = opensm(&QosPlan::new(Bytes(payload)).expect("a payload of ports"));
            let conf = SourceText { file: "opensm.conf", text: &text };
            assert_eq!(check(conf, Bytes(payload)), Ok(Vec::new()), "{text}");
            for port in PORTS {
                assert_eq!(text.matches(&format!("qos_{port}_")).count(), 5);
            }
        }
        assert!(opensm(&plan()).contains("qos_swe_vlarb_low 0:128,3:64,0:128,3:64,4:64\n"));
    }

    #[test]
    fn policy__each_class_has_a_port_and_a_level() {
        let text = policy(&plan());
        assert!(
            text.contains("any, service-id 0x000000000106c353 : 3 # bulk: port 50003"),
            "{text}"
        );
        assert_eq!(text.matches("service-id").count(), Class::ALL.len());
        let conf = opensm(&plan());
        let [conf, policy] =
            [&conf, &text].map(|text| SourceText { file: "opensm.conf", text: text.as_str() });
        assert_eq!(check_policy(conf, policy, None), Ok(Vec::new()));
    }

    #[test]
    fn emit__no_line_is_longer_than_80_columns() {
        let plan = plan();
        let interface = "enp3s0f0".parse().expect("a name");
        for target in EmitTarget::value_variants() {
            let text = emit(*target, (&plan, LowShares::USUAL), &interface);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn ethernet__strict_classes_have_no_share_and_the_others_have_all() {
        let usual = LowShares::USUAL;
        let text = dcb("eth0", usual);
        assert!(
            text.contains("tc-bw 0:14 1:29 2:57 3:0 4:0 5:0 6:0 7:0")
                && text.contains("tc-tsa 0:ets 1:ets 2:ets 3:strict"),
            "{text}"
        );
        assert!(
            mlnx("eth0", usual).contains(
                "-s ets,ets,ets,strict,strict,strict,strict,strict \\\n    -t 14,29,57,0"
            )
        );
        assert!(tc("eth0", usual).contains("quanta 36000 18000 9000"));
        let other = LowShares::new([20, 70, 10]).expect("parts");
        assert!(tc("eth0", other).contains("by 2, 7 and 1 parts"), "{}", tc("eth0", other));
        assert!(dcb("eth0", other).contains("tc-bw 0:10 1:70 2:20 3:0"));
    }

    #[test]
    fn emit__every_target_has_lines_that_end() {
        for target in EmitTarget::value_variants() {
            let text =
                emit(*target, (&plan(), LowShares::USUAL), &InterfaceName("eth0".to_owned()));
            assert!(text.ends_with('\n') && text.lines().count() > 1, "{target:?}: {text}");
        }
    }

    #[test]
    fn interface__what_the_kernel_or_a_shell_would_take_otherwise_is_refused() {
        for name in ["eth0", "enp3s0f0np0", "bond0.100", "veth1@if2", "br-0a1b2c3d4e5f"] {
            assert_eq!(name.parse(), Ok(InterfaceName(name.to_owned())));
        }
        let special = " \t\n/:$;|&<>`'\"\\*?~#{}()[]!=%^,\u{e9}".chars();
        let with_special = special.map(|special| format!("a{special}b"));
        let whole = ["", ".", "..", "-i", "sixteen-bytes-xx"].map(str::to_owned);
        for name in with_special.chain(whole) {
            let why = name.parse::<InterfaceName>().expect_err(&name);
            assert!(why.contains("as in enp3s0f0") && !why.contains('\n'), "{why}");
        }
    }
}
