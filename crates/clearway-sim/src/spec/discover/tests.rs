//! Tests of ibnetdiscover's text: two switches and three machines, odd names, and text that is
//! none.

use proptest::prelude::*;

use super::*;

/// In the form of infiniband-diags, with invented identities.
const TEXT: &str = r#"#
# Topology file: generated on Mon Jan  1 00:00:00 2024
#
# Initiated from node 00000000000000a1 port 00000000000000a1

vendid=0x2c9
devid=0xcb20
sysimgguid=0xa1
switchguid=0xa1(a1)
Switch	36 "S-00000000000000a1"		# "leaf one" enhanced port 0 lid 48 lmc 0
[1]	"H-00000000000000b1"[1](b11) 		# "node1 HCA-1" lid 67 4xEDR
[2]	"H-00000000000000b2"[1](b21) 		# "node2 mlx5_0" lid 68 2xHDR s=32 w=2
[3]	"S-00000000000000a2"[7]		# "leaf two" lid 2 4xHDR
[9]	"H-00000000000000e1"[1](e11)		# "Mellanox Technologies Aggregation Node" lid 9 4xHDR

switchguid=0xa2(a2)
Switch	36 "S-00000000000000a2"		# "leaf two" base port 0 lid 2 lmc 0
[7]	"S-00000000000000a1"[3]		# "leaf one" lid 48 4xHDR
[8]	"H-00000000000000b3"[1](b31) 		# "node2 mlx5_1" lid 70 2xHDR

caguid=0xb1
Ca	1 "H-00000000000000b1"		# "node1 HCA-1"
[1](b11) 	"S-00000000000000a1"[1]		# lid 67 lmc 0 "leaf one" lid 48 4xEDR

caguid=0xb2
Ca	1 "H-00000000000000b2"		# "node2 mlx5_0"
[1](b21) 	"S-00000000000000a1"[2]		# lid 68 lmc 0 "leaf one" lid 48 2xHDR

caguid=0xb3
Ca	1 "H-00000000000000b3"		# "node2 mlx5_1"
[1](b31) 	"S-00000000000000a2"[8]		# lid 70 lmc 0 "leaf two" lid 2 2xHDR

caguid=0xe1
Ca	1 "H-00000000000000e1"		# "Mellanox Technologies Aggregation Node"
[1](e11) 	"S-00000000000000a1"[9]		# lid 9 lmc 0 "leaf one" lid 48 4xHDR
"#;

#[test]
fn ports__have_their_own_lids_and_enhanced_ports_0_count() {
    let ports: Vec<(String, u16, u32)> =
        ports(TEXT).unwrap().into_iter().map(|port| (port.device, port.lid, port.number)).collect();
    let expected = [
        ("leaf one", 48, 0),
        ("leaf one", 48, 1),
        ("leaf one", 48, 2),
        ("leaf one", 48, 3),
        ("leaf one", 48, 9),
        ("leaf two", 2, 7),
        ("leaf two", 2, 8),
        ("node1 HCA-1", 67, 1),
        ("node2 mlx5_0", 68, 1),
        ("node2 mlx5_1", 70, 1),
    ];
    assert_eq!(ports, expected.map(|(device, lid, port)| (device.to_owned(), lid, port)));
}

#[test]
fn parse__cables_are_counted_once_and_adapters_of_a_machine_are_one_host() {
    let subnet = parse(TEXT).unwrap();
    assert_eq!(subnet.hosts, ["node1", "node2"]);
    assert_eq!(subnet.switches, ["leaf one", "leaf two"]);
    let mut reported: Vec<(String, CableEnd, u64)> = subnet
        .cables
        .iter()
        .map(|cable| (cable.ends.join(" - "), cable.at, cable.rate.0 / 1_000_000_000))
        .collect();
    reported.sort();
    let expected = [
        ("leaf one - leaf two", CableEnd::Switches, 200),
        ("node1 - leaf one", CableEnd::Host, 100),
        ("node2 - leaf one", CableEnd::Host, 100),
        ("node2 - leaf two", CableEnd::Host, 100),
    ];
    assert_eq!(reported, expected.map(|(ends, at, rate)| (ends.to_owned(), at, rate)));
}

#[test]
fn parse__devices_with_one_description_are_distinguished() {
    let text = "Switch 8 \"S-01\" # \"SW\"\n[1] \"S-02\"[1] # \"SW\" lid 1 4xQDR\nSwitch 8 \"S-02\" # \"SW\"\n";
    assert_eq!(parse(text).unwrap().switches, ["SW 01", "SW 02"]);
}

#[test]
fn parse__what_is_no_topology_is_named_with_its_line() {
    for (text, line, expected) in [
        ("[1] \"S-1\"[1] # 4xEDR", 1, "before any `Switch`"),
        ("\nhello", 2, "`hello` is no node"),
        ("Switch 8 \"S-01\" # \"a\"\n[1] nothing", 2, "is no port"),
        (
            "Switch 8 \"S-01\" # \"a\"\n[1] \"H-02\"[1] # \"b\" 4xEDR",
            2,
            "`H-02`, which is not described",
        ),
        (
            "Ca 1 \"H-02\" # \"b\"\nSwitch 8 \"S-01\" # \"a\"\n[1] \"H-02\"[1] # \"b\" 4xEDX",
            3,
            "did you mean `EDR`?",
        ),
        (
            "Ca 1 \"H-02\" # \"b\"\nSwitch 8 \"S-01\" # \"a\"\n[1] \"H-02\"[1] # \"b\" 99xEDR",
            3,
            "no width and speed",
        ),
    ] {
        let (at, why) = parse(text).unwrap_err();
        assert!(at == line && why.contains(expected), "{text}: {at}: {why}");
    }
}

proptest! {
    #[test]
    fn parse__any_text_gives_an_answer(text in ".{0,300}") {
        let _ = parse(&text);
    }

    #[test]
    fn parse__a_damaged_file_gives_an_answer(at in 0usize..1_800, length in 0usize..20, junk in "[0-9a-zSH\\[\\]()\"# \n-]{0,10}") {
        let at = at.min(TEXT.len());
        let end = (at + length).min(TEXT.len());
        let _ = parse(&format!("{}{junk}{}", &TEXT[..at], &TEXT[end..]));
    }
}

#[test]
fn parse__a_file_without_devices_is_refused() {
    for text in ["", "# nothing\n", "vendid=0x2c9\n"] {
        let (line, why) = parse(text).unwrap_err();
        assert!(line == 1 && why.contains("no device is in this file"), "{why}");
    }
}
