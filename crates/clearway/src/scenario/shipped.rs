//! The scenarios that come with the program, so that it needs no file next to it.

/// Name and text of each.
pub(super) const SHIPPED: [(&str, &str); 24] = [
    ("broadcast", include_str!("../../../../scenarios/broadcast.toml")),
    ("broadcast-sim", include_str!("../../../../scenarios/broadcast-sim.toml")),
    ("demo", include_str!("../../../../scenarios/demo.toml")),
    ("gpcnet-aries", include_str!("../../../../scenarios/gpcnet-aries.toml")),
    ("gpcnet-edr", include_str!("../../../../scenarios/gpcnet-edr.toml")),
    ("gpcnet-slingshot", include_str!("../../../../scenarios/gpcnet-slingshot.toml")),
    ("incast", include_str!("../../../../scenarios/incast.toml")),
    ("matrix", include_str!("../../../../scenarios/matrix.toml")),
    ("null", include_str!("../../../../scenarios/null.toml")),
    ("shares", include_str!("../../../../scenarios/shares.toml")),
    ("shmem-1024", include_str!("../../../../scenarios/shmem-1024.toml")),
    ("shmem-640", include_str!("../../../../scenarios/shmem-640.toml")),
    ("staging-checkpoint", include_str!("../../../../scenarios/staging-checkpoint.toml")),
    ("staging-qdr", include_str!("../../../../scenarios/staging-qdr.toml")),
    ("timeslice-1024", include_str!("../../../../scenarios/timeslice-1024.toml")),
    ("timeslice-128", include_str!("../../../../scenarios/timeslice-128.toml")),
    ("timeslice-192", include_str!("../../../../scenarios/timeslice-192.toml")),
    ("timeslice-384", include_str!("../../../../scenarios/timeslice-384.toml")),
    ("timeslice-4096", include_str!("../../../../scenarios/timeslice-4096.toml")),
    ("timeslice-64", include_str!("../../../../scenarios/timeslice-64.toml")),
    ("timeslice-drop", include_str!("../../../../scenarios/timeslice-drop.toml")),
    ("timeslice-noise", include_str!("../../../../scenarios/timeslice-noise.toml")),
    ("together", include_str!("../../../../scenarios/together.toml")),
    ("trunk", include_str!("../../../../scenarios/trunk.toml")),
];

/// Returns the names of all, for a sentence.
pub(crate) fn shipped_names() -> String {
    SHIPPED.map(|(name, _)| name).join(", ")
}

/// Returns the text of the scenario called `name` (or `name.toml`, or `scenarios/name.toml`).
pub(crate) fn shipped(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("scenarios/").unwrap_or(name);
    let name = name.strip_suffix(".toml").unwrap_or(name);
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
