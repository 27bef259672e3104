//! `clearway topo`: fabrics that can be simulated, explained, checked, and made from a live
//! network's own tables.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clearway_proto::base::Bytes;
use clearway_runtime::launch::escaped;
use clearway_sim::spec::explain::explain;
use clearway_sim::spec::file::{FabricFile, FileOptions};
use clearway_sim::spec::import::{SourceText, import};
use clearway_sim::spec::presets;
use rustix::fs::OFlags;

use super::{TopoCommand, for_output, print};
use crate::run::exit::Exit;
use crate::run::notice;
use crate::scenario::nearest;

/// The longest text of ibnetdiscover: of the largest machines it is some megabytes.
pub(super) const NETWORK_MAX: Bytes = Bytes(64 << 20);
/// The longest file that a person writes for a subnet manager; OpenSM's own has some kilobytes.
pub(super) const CONF_MAX: Bytes = Bytes(4 << 20);

/// Does what `command` says.
pub(crate) fn command(command: TopoCommand) -> Result<Exit> {
    let page = match command {
        TopoCommand::List => for_output(&list()?),
        TopoCommand::Explain { fabric, policy, hosts } => {
            let options = FileOptions { policy: policy.as_deref(), hosts };
            for_output(&explain(&FabricFile::open(&fabric, options)?)?)
        }
        TopoCommand::Check { fabric } => check(&fabric)?,
        TopoCommand::Print { fabric } => match presets::shipped(&fabric) {
            Some(text) => text.to_owned(),
            None => bail!(
                "there is no shipped fabric `{fabric}`; {}",
                nearest(&fabric, &presets::names())
            ),
        },
        TopoCommand::Import { conf, switches, base } => {
            import_from(&conf, switches.as_deref(), &base)?
        }
    };
    print(&page)?;
    Ok(Exit::Good)
}

fn list() -> Result<String> {
    let mut page = String::new();
    for name in presets::names() {
        let file = FabricFile::open(name, FileOptions::default())?;
        let policies: Vec<&str> = file.policies.iter().map(|(name, _)| name.as_str()).collect();
        page.push_str(&format!(
            "{name:<11} {}\n{:<11} policies: {}\n",
            file.spec.about,
            "",
            policies.join(", ")
        ));
    }
    Ok(page)
}

/// Judges every policy, because every one can be asked for.
fn check(fabric: &str) -> Result<String> {
    let policies = presets::policies(fabric)?;
    for policy in &policies {
        let file = FabricFile::open(fabric, FileOptions { policy: Some(policy), hosts: None })?;
        file.prove().with_context(|| format!("under policy {policy}"))?;
    }
    let file = FabricFile::open(fabric, FileOptions::default())?;
    let unsaid = file.figures.iter().filter(|figure| figure.source.is_none()).count();
    let silent =
        if unsaid == 0 { String::new() } else { format!("; {unsaid} figures name no source") };
    let hosts = file.spec.topology.hosts();
    Ok(format!(
        "{fabric} is right: {hosts} hosts, policies {}, free of deadlock{silent}\n",
        policies.join(", ")
    ))
}

fn import_from(conf: &Path, switches: Option<&Path>, base: &str) -> Result<String> {
    let text = read(conf, CONF_MAX)?;
    let net = switches
        .map(|path| Ok::<_, anyhow::Error>((path.display().to_string(), read(path, NETWORK_MAX)?)))
        .transpose()?;
    let shown = conf.display().to_string();
    let net = net.as_ref().map(|(file, text)| SourceText { file, text });
    let made = import("imported", base, SourceText { file: &shown, text: &text }, net)?;
    for remark in &made.remarks {
        notice!("clearway: {}: {}", escaped(&shown), escaped(remark));
    }
    FabricFile::parse("the imported fabric", &made.text, FileOptions::default())?.prove()?;
    Ok(made.text)
}

/// Returns the text of a file from outside, which has at most `most` and is in any alphabet.
pub(super) fn read(path: &Path, most: Bytes) -> Result<String> {
    let shown = path.display();
    // A pipe would wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.with_context(|| format!("{shown}"))?;
    if !file.metadata().with_context(|| format!("{shown}"))?.is_file() {
        bail!("{shown}: no regular file; save the text in one, and name that");
    }
    let mut bytes = Vec::new();
    file.take(most.0 + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("{shown}: cannot be read"))?;
    if bytes.len() as u64 > most.0 {
        bail!("{shown}: larger than {most}, which no such file is");
    }
    // Descriptions of devices are whatever their owners typed, in whatever alphabet.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list__names_every_fabric_with_its_policies() {
        let page = list().unwrap();
        for name in presets::names() {
            assert!(
                page.lines().any(|line| line.starts_with(&format!("{name} "))),
                "{name}\n{page}"
            );
        }
        assert!(page.contains("policies: shared, lanes"));
    }

    #[test]
    fn check__a_right_file_gets_one_line_and_a_wrong_one_a_sentence() {
        assert_eq!(check("qdr").unwrap().lines().count(), 1);
        let directory = std::env::temp_dir().join(format!("clearway-topo-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("bad.toml");
        fs::write(&path, "format = 1\nextends = \"edr\"\n[link.host]\nrate = \"100\"\n").unwrap();
        let sentence = check(path.to_str().unwrap()).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert!(
            sentence.contains("bad.toml: line 4: link.host.rate: `100` needs one of the units"),
            "{sentence}"
        );
    }

    #[test]
    fn import__what_is_printed_is_a_fabric_file() {
        let directory =
            std::env::temp_dir().join(format!("clearway-import-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("opensm.conf");
        fs::write(&path, "qos TRUE\nqos_ca_high_limit 255\n").unwrap();
        let text = import_from(&path, None, "qdr");
        fs::remove_dir_all(&directory).unwrap();
        let file = FabricFile::parse("mine.toml", &text.unwrap(), FileOptions::default()).unwrap();
        assert_eq!(file.policy, "imported");
    }

    /// Returns `text` with each of its numbers in turn replaced by one that nobody means.
    fn with_wild_numbers(text: &str) -> Vec<String> {
        let digits = |c: char| c.is_ascii_digit();
        let mut texts = Vec::new();
        let mut at = 0;
        while let Some(begin) = text[at..].find(digits).map(|found| at + found) {
            let end = text[begin..].find(|c| !digits(c)).map_or(text.len(), |found| begin + found);
            for wild in ["0", "4294967295", "18446744073709551615"] {
                texts.push([&text[..begin], wild, &text[end..]].concat());
            }
            at = end;
        }
        texts
    }

    #[test]
    fn parse__no_number_of_a_fabric_or_an_imported_file_is_too_large_or_too_small_to_be_refused() {
        let lines = |text: &str| {
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .collect::<Vec<_>>()
                .join("\n")
        };
        for name in presets::names() {
            for text in with_wild_numbers(&lines(presets::shipped(name).unwrap())) {
                let read = std::panic::catch_unwind(|| {
                    drop(FabricFile::parse("wild", &text, FileOptions::default()))
                });
                assert!(read.is_ok(), "{text}");
            }
        }
        let conf = "qos TRUE\nqos_max_vls 4\nqos_high_limit 255\nqos_vlarb_high 0:64,1:64\nqos_vlarb_low 0:4,1:4\n\
                    qos_sl2vl 0,1,2,3,0,1,2,3,0,1,2,3,0,1,2,3\n";
        let net = "vendid=0x2c9\nSwitch 36 \"S-0002c9\" # \"leaf\" enhanced port 0 lid 3 lmc 0\n\
                   [1] \"H-0002c8\"[1](2c8) # \"n1 HCA-1\" lid 4 4xQDR\n\nCa 2 \"H-0002c8\" # \"n1 HCA-1\"\n\
                   [1](2c8) \"S-0002c9\"[1] # lid 4 lmc 0 \"leaf\" lid 3 4xQDR\n";
        let confs = with_wild_numbers(conf).into_iter().map(|text| (text, net.to_owned()));
        let nets = with_wild_numbers(net).into_iter().map(|text| (conf.to_owned(), text));
        for (conf, net) in confs.chain(nets) {
            let read = std::panic::catch_unwind(|| {
                let [conf, net] = [&conf, &net].map(|text| SourceText { file: "wild", text });
                drop(import("imported", "qdr", conf, Some(net)));
            });
            assert!(read.is_ok(), "{conf}{net}");
        }
    }
}
