//! The scenarios that come with the program, so that it needs no file beside it.

/// Name and text of each.
pub(crate) const SHIPPED: [(&str, &str); 10] = [
    ("demo", include_str!("../../../../scenarios/demo.toml")),
    ("demo-machine", include_str!("../../../../scenarios/demo-machine.toml")),
    ("gpcnet-aries", include_str!("../../../../scenarios/gpcnet-aries.toml")),
    ("gpcnet-edr", include_str!("../../../../scenarios/gpcnet-edr.toml")),
    ("gpcnet-slingshot", include_str!("../../../../scenarios/gpcnet-slingshot.toml")),
    ("incast", include_str!("../../../../scenarios/incast.toml")),
    ("matrix", include_str!("../../../../scenarios/matrix.toml")),
    ("null", include_str!("../../../../scenarios/null.toml")),
    ("shares", include_str!("../../../../scenarios/shares.toml")),
    ("trunk", include_str!("../../../../scenarios/trunk.toml")),
];

/// The text of the scenario called `name` (or `name.toml`, or `scenarios/name.toml`).
pub(crate) fn shipped(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("scenarios/").unwrap_or(name);
    let name = name.strip_suffix(".toml").unwrap_or(name);
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
