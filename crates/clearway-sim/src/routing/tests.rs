//! Ways end where they should, within their bounds, without circles.
