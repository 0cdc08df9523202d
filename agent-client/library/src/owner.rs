//! Who is at the other end of a connection on this machine.
//!
//! Owns: the look at the other process's user, before it is told anything. Never: trusts a name, a
//! path or a port: whoever came first may have taken it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use agent_protocol::local::place::is_ours_or_roots;
use tokio::net::{TcpStream, UnixStream};

/// The kernel's lists of TCP sockets; there are none but on Linux.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens.
const LISTENS: &str = "0A";

/// The user at the other end of a Unix socket, unless that is we ourselves. Not even the superuser:
/// a daemon of his works with his rights.
pub(crate) fn other_user_on_unix(stream: &UnixStream) -> io::Result<Option<u32>> {
    let uid = stream.peer_cred()?.uid();
    Ok((uid != rustix::process::geteuid().as_raw()).then_some(uid))
}

/// The user at the other end of a TCP connection within this machine, where it can be told and is
/// neither we nor the superuser, who forwards ports for others.
pub(crate) fn other_user_on_tcp(stream: &TcpStream) -> io::Result<Option<u32>> {
    let ends =
        Ends { ours: canonical(stream.local_addr()?), theirs: canonical(stream.peer_addr()?) };
    let tables = TABLES.map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let users = ends.users(tables.iter().flat_map(|table| table.lines()));
    Ok(users.into_iter().flatten().find(|uid| !is_ours_or_roots(*uid)))
}

/// A connection within this machine.
struct Ends {
    ours: SocketAddr,
    theirs: SocketAddr,
}

/// A line of the kernel's list.
struct SocketRow<'a> {
    local: SocketAddr,
    remote: SocketAddr,
    state: &'a str,
    uid: u32,
}

impl Ends {
    /// Whose the other end is once it was accepted; and who listens, and so will accept it.
    fn users<'a>(&self, lines: impl Iterator<Item = &'a str>) -> [Option<u32>; 2] {
        let mut accepted = None;
        let mut listening: Option<(u8, u32)> = None;
        for entry in lines.filter_map(entry) {
            if (entry.local, entry.remote) == (self.theirs, self.ours) {
                accepted = Some(entry.uid);
            }
            let rank = self.rank(&entry);
            if rank.is_some_and(|rank| listening.is_none_or(|(best, _)| rank < best)) {
                listening = rank.map(|rank| (rank, entry.uid));
            }
        }
        [accepted, listening.map(|(_, uid)| uid)]
    }

    /// How closely a listening socket fits: the system prefers the one that names the address.
    fn rank(&self, entry: &SocketRow<'_>) -> Option<u8> {
        let fits = entry.state == LISTENS && entry.local.port() == self.theirs.port();
        match (fits, entry.local.ip(), self.theirs.ip()) {
            (true, local, theirs) if local == theirs => Some(0),
            (true, IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(_))
            | (true, IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(_)) => Some(1),
            (true, IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(_)) => Some(2),
            _ => None,
        }
    }
}

fn entry(line: &str) -> Option<SocketRow<'_>> {
    let mut fields = line.split_whitespace();
    let (local, remote, state) = (fields.nth(1)?, fields.next()?, fields.next()?);
    let uid = fields.nth(3)?.parse().ok()?;
    Some(SocketRow { local: address(local)?, remote: address(remote)?, state, uid })
}

/// Words of 32 bits in the machine's own order, each in hex, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::with_capacity(16);
    for word in 0..ip.len() / 8 {
        let word = u32::from_str_radix(ip.get(word * 8..word * 8 + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    Some(canonical((ip, port).into()))
}

/// An IPv4 address that was written as an IPv6 one is the same.
fn canonical(address: SocketAddr) -> SocketAddr {
    (address.ip().to_canonical(), address.port()).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn end(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    // As a machine with the other order of bytes would have it.
    fn line(local: &str, remote: &str, state: &str, uid: u32) -> String {
        format!(
            "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000  {uid}  0 7 1"
        )
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_owner_of_the_other_end_is_found_in_the_kernel_s_lists() {
        let (v4, any4) = ("0100007F:1F90", "00000000:1F90");
        let (v6, any6) =
            ("00000000000000000000000001000000:1F90", "00000000000000000000000000000000:1F90");
        let (none, ours) = ("00000000:0000", "0100007F:C000");
        let mapped = "0000000000000000FFFF00000100007F";
        let ends = Ends { ours: end("127.0.0.1:49152"), theirs: end("127.0.0.1:8080") };
        for (lines, expected) in [
            (vec![], [None, None]),
            (vec![line(v4, none, "0A", 7)], [None, Some(7)]),
            // Of several the closest one serves.
            (vec![line(any4, none, "0A", 8), line(v4, none, "0A", 7)], [None, Some(7)]),
            (vec![line(any6, none, "0A", 9), line(any4, none, "0A", 8)], [None, Some(8)]),
            (vec![line(any6, none, "0A", 9)], [None, Some(9)]),
            (vec![line(v6, none, "0A", 9)], [None, None]),
            // Another port, and one that only connects.
            (vec![line("0100007F:1F91", none, "0A", 7), line(v4, ours, "06", 0)], [Some(0), None]),
            (vec![line(v4, ours, "01", 7)], [Some(7), None]),
            (
                vec![line(&format!("{mapped}:1F90"), &format!("{mapped}:C000"), "01", 7)],
                [Some(7), None],
            ),
            (
                vec!["  sl  local_address rem_address   st".to_owned(), "rubbish".to_owned()],
                [None; 2],
            ),
        ] {
            assert_eq!(ends.users(lines.iter().map(String::as_str)), expected, "{lines:#?}");
        }
    }

    #[tokio::test]
    async fn a_connection_to_ourselves_is_nobody_else_s() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        assert_eq!(other_user_on_tcp(&stream).unwrap(), None);
        let _accepted = listener.accept().await.unwrap();
        assert_eq!(other_user_on_tcp(&stream).unwrap(), None);
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(other_user_on_unix(&ours).unwrap(), None);
    }
}
