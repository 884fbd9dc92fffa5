"""Each trap of overlays, row of the field reports, rule and bad input has a test by its name.

The tables say where to look; the tests here see that the documents hold nothing that is not in
a table, and that every test in a table is there. Others may be about the same, with peers that
are not ours: tests/interop/overlay.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SHARED = TESTS.parents[1] / "shared"

# specs/overlay-traps.md, by number.
TRAPS = {
    1: "test_trap_1_a_restart_with_an_earlier_clock_is_silent_until_the_peer_is_added_anew",
    2: "test_trap_2_two_initiations_of_one_peer",
    3: "test_trap_3_a_preshared_key_on_one_side_never_gives_a_session",
    4: "test_trap_4_a_new_preshared_key_counts_from_the_next_handshake_on",
    5: "test_trap_5_a_peer_key_of_low_order_is_accepted_and_gets_no_handshake",
    6: "test_trap_6_a_response_may_take_as_long_as_the_next_initiation",
    7: "test_trap_7_both_begin_at_once_and_agree_within_6_s",
    8: "test_trap_8_1000_packets_a_second_to_a_silent_peer_are_4_initiations_in_20_s",
    9: "test_trap_9_one_packet_to_a_silent_peer_is_20_initiations_in_98_s_and_then_silence",
    10: "test_trap_10_indices_are_random_and_say_nothing_about_us",
    11: "test_trap_11_initiations_of_a_hostile_peer_leave_three_sessions_at_most",
    12: "test_trap_12_a_reserved_byte_is_refused_though_its_mac1_is_right",
    13: "test_trap_13_under_load_everyone_is_answered_by_a_cookie_reply",
    14: "test_trap_14_a_second_after_the_flood_plain_initiations_are_answered_again",
    15: "test_trap_15_under_load_a_cookie_of_another_port_gets_a_cookie_and_no_response",
    16: "test_trap_16_a_replayed_cookie_reply_moves_nothing",
    17: "test_trap_17_one_reply_is_taken_for_one_message",
    18: "test_trap_18_datagrams_of_any_size_are_survived",
    19: "test_trap_19_two_idle_peers_say_at_most_one_keepalive_each",
    20: "test_trap_20_a_packet_not_answered_is_answered_by_a_keepalive_after_10_s",
    21: "test_trap_21_persistent_keepalive_begins_at_once",
    22: "test_trap_22_no_persistent_keepalive_while_traffic_flows",
    23: "test_trap_23_a_responder_never_renews_for_age",
    24: "test_trap_24_what_arrives_after_180_s_is_lost_and_the_next_gets_a_new_session",
    25: "test_trap_25_the_responder_sends_nothing_on_a_session_before_it_is_confirmed",
    26: "test_trap_26_late_packets_of_the_old_session_arrive_and_do_not_bring_it_back",
    27: "test_trap_27_after_ten_minutes_of_cut_one_packet_brings_the_tunnel_back",
    28: "test_trap_28_counters_at_the_real_limits",
    29: "test_trap_29_packets_8000_late_arrive",
    30: "test_trap_30_a_forged_counter_does_not_move_the_window",
    31: "test_trap_31_a_keepalive_that_is_lost_begins_nothing",
    32: "test_trap_32_sessions_of_an_old_private_key_receive_and_do_not_send",
    33: "test_trap_33_the_wall_clock_shows_and_decides_nothing",
    34: "test_trap_34_an_mtu_of_zero_and_packets_above_the_mtu",
    35: "test_trap_35_a_longer_prefix_of_another_peer_counts",
    36: "test_trap_36_a_prefix_given_to_another_peer_moves_and_that_is_said",
    37: "test_trap_37_the_allowed_ip_programs",
    38: "test_trap_38_a_packet_without_a_peer_is_answered",
    39: "test_trap_39_port_and_mark_are_the_sockets_or_nothing_is_changed",
    40: "test_trap_40_short_and_lying_inner_packets_are_dropped",
    41: "test_trap_41_padding_goes_on_and_comes_off",
    42: "test_trap_42_a_wrong_checksum_inside_is_never_made_right",
    43: "test_trap_43_the_table_of_marks",
    44: "test_trap_44_what_is_too_big_for_the_path_is_told_or_sent_in_fragments",
    45: "test_trap_45_where_a_device_refuses_trains_they_go_singly_from_then_on",
    46: "test_trap_46_trains_can_be_switched_off",
    47: "test_trap_47_where_a_kernel_takes_no_runs_it_gets_packets",
    48: "test_trap_48_datagrams_are_never_joined",
    49: "test_trap_49_a_train_has_bounds_in_datagrams_and_in_bytes",
    50: "test_trap_50_what_finds_no_room_waits_for_it",
    51: "test_trap_51_what_comes_in_a_burst_has_room",
    52: "test_trap_52_our_own_address_is_forgotten_when_it_may_be_what_is_wrong",
    53: "test_trap_53_without_one_family_the_other_works",
    54: "test_trap_54_an_address_is_a_value_and_none_is_written_over",
    55: "test_trap_55_the_sender_inside_is_told_what_the_path_takes",
    56: "test_trap_56_a_narrow_hop_is_no_black_hole_and_nothing_is_cut",
    57: "test_trap_57_a_connection_without_a_byte_holds_nobody_up",
    58: "test_trap_58_a_wrong_setting_is_einval_with_a_negative_sign",
    63: "test_trap_63_between_spokes_every_packet_passes_the_hub_twice",
    65: "test_trap_65_all_that_is_inside_is_one_flow_outside",
    66: "test_trap_66_what_is_lost_is_not_sent_again",
    67: "test_trap_67_a_tunnel_in_a_tunnel_takes_its_bytes_twice",
    68: "test_trap_56_a_narrow_hop_is_no_black_hole_and_nothing_is_cut",
    69: "test_trap_69_nothing_is_lost_when_sessions_are_renewed",
    70: "test_trap_70_after_minutes_of_silence_a_burst_waits_for_one_round_trip",
    71: "test_trap_71_a_keepalive_keeps_the_way_in_open",
    72: "test_trap_72_256_peers_at_once_are_all_up_within_10_s",
    74: "test_trap_74_what_a_packet_costs_is_counted_with_its_header_and_padding",
}

# Traps that no endpoint can be tested for, and why.
NOT_OURS = {
    59: "NCCL's choice of an interface",
    60: "NCCL's connections of every rank to every other",
    61: "NCCL's number of sockets",
    62: "the link speed that NCCL reads of a TUN, which is the kernel's",
    64: "the order of a ring, which a collective chooses",
    73: "cores shared with training: a matter of the host's scheduler",
}

# cases/field-reports.md, section 6.
ROWS = {
    "W02": "test_w02_a_skew_of_50_packets_fits_a_window_of_64",
    "W03": "test_w03_a_session_is_renewed_after_so_many_messages_without_loss",
    "W05": "test_w05_they_follow_us_to_another_port_and_family",
    "W06": "test_w06_on_an_underlay_of_1280_the_path_mtu_falls_and_nothing_is_cut",
    "W07": "test_all_headers_of_the_stack_are_added_up",
    "W08": "test_w08_what_the_overlay_needs_for_itself_is_counted_apart_from_data",
    "W09": "test_bytes_flow_again_after_a_link_was_down",
}

# What a peer, a stranger or a replayer may try; in each case silence, a counter, no harm.
BAD_INPUT = {
    "reserved bytes": "test_trap_12_a_reserved_byte_is_refused_though_its_mac1_is_right",
    "wrong index": "test_a_wrong_message_is_counted_and_changes_nothing",
    "bad mac1": "test_a_wrong_message_is_counted_and_changes_nothing",
    "truncated": "test_a_wrong_message_is_counted_and_changes_nothing",
    "oversized": "test_trap_18_datagrams_of_any_size_are_survived",
    "a wrong response": "test_a_wrong_response_leaves_the_handshake_under_way",
    "replayed initiation": "test_a_replayed_initiation_is_silent_and_moves_nothing",
    "the window's edges": (
        "test_section_7_the_window_ends_8128_behind_the_newest_and_each_counter_counts_once"
    ),
    "source not allowed": "test_the_source_of_an_inner_packet_must_be_the_peers",
    "flood, memory": "test_memory_is_bounded_in_a_flood_that_nobody_fetches_the_answers_of",
    "flood, work": "test_section_5_a_flood_costs_no_exchange_of_keys_once_it_is_load",
    "flood, an honest peer": "test_an_honest_peer_gets_in_during_a_flood_with_its_cookie",
    "flood, sessions": "test_data_flows_during_a_flood",
    "a cookie from another address": (
        "test_trap_15_under_load_a_cookie_of_another_port_gets_a_cookie_and_no_response"
    ),
    "forged, for the endpoint": "test_a_forged_and_a_replayed_packet_move_nothing",
    "clock set back": "test_a_wall_clock_set_back_while_we_run_does_not_lock_us_out",
    "limit on messages": "test_trap_28_at_the_limit_nothing_more_is_sent_on_a_session",
    "limit on time": "test_a_session_of_180_s_sends_nothing_more",
    "nonces": "test_no_schedule_raises_reuses_a_nonce_or_delivers_what_was_not_sent",
    "anything at all": "test_no_bytes_at_all_raise_or_get_an_answer",
    "anything inside": "test_a_hostile_peer_may_put_anything_inside",
}

# specs/wireguard.md: its sections that are rules of the protocol, and who holds us to each.
RULES = {
    "1, primitives": "test_x25519_and_a_result_of_zero_is_none",
    "1, XAEAD": "test_xchacha20poly1305",
    "2, initial values": "test_the_state_that_every_handshake_begins_with",
    "3, messages": "test_what_kernels_sent_unpacks_and_packs_to_the_same_bytes",
    "4, handshake": "test_handshakes_of_the_linux_module_are_rebuilt_to_the_byte",
    "4, one slot": "test_to_answer_an_initiation_gives_up_our_own",
    "4, indices": "test_trap_11_failed_handshakes_leave_no_index_behind",
    "5, mac1": "test_a_message_for_another_public_key_has_no_good_mac1",
    "5, mac2 without load": "test_section_5_without_load_nobody_looks_at_mac2",
    "5, to responses, too": "test_a_response_is_judged_under_load_too",
    "5, life of a cookie": "test_a_cookie_is_used_115_seconds_and_known_120",
    "5, rate": "test_under_load_one_address_gets_20_a_second_and_5_at_once",
    "6, timestamps": "test_every_initiation_has_its_own_ephemeral_index_and_timestamp",
    "6, the greatest": "test_trap_2_two_initiations_of_one_peer",
    "7, counters": "test_packets_that_wait_keep_their_order_and_get_rising_counters",
    "7, padding": "test_padding_by_the_table",
    "7, unpadded": "test_a_packet_that_is_not_padded_is_as_good",
    "7, window": "test_the_replay_sequence_of_wireguard_go",
    "7, after the window": "test_section_7_what_is_wrong_inside_takes_nothing_back",
    "8, slots": "test_every_move_between_the_places",
    "8, a response sent": "test_a_response_sent_counts_as_a_handshake_of_ours_for_5_s",
    "8, the old session": "test_until_then_the_responder_goes_on_with_the_session_it_had",
    "9, retransmit": (
        "test_trap_9_one_packet_to_a_silent_peer_is_20_initiations_in_98_s_and_then_silence"
    ),
    "9, passive keepalive": (
        "test_trap_20_a_packet_not_answered_is_answered_by_a_keepalive_after_10_s"
    ),
    "9, need another": "test_data_again_while_the_timer_runs_makes_no_second_keepalive",
    "9, new handshake": "test_trap_31_15_s_without_an_answer_to_data_begin_a_handshake",
    "9, from the first data": (
        "test_section_9_data_again_needs_a_new_wait_once_something_was_heard"
    ),
    "9, wipe": "test_keys_are_wiped_540_s_after_the_last_session",
    "9, wipe after giving up": "test_section_9_who_gives_up_forgets_its_keys_540_s_later",
    "9, persistent": (
        "test_persistent_keepalives_come_every_interval_and_keep_the_session_renewed"
    ),
    "9, one per 5 s": (
        "test_trap_8_1000_packets_a_second_to_a_silent_peer_are_4_initiations_in_20_s"
    ),
    "9, renewal by age": "test_the_initiator_renews_when_it_sends_at_120_s",
    "9, renewal by messages": "test_trap_28_past_2_to_the_60_a_session_is_renewed",
    "9, renewal on receipt": "test_the_initiator_renews_when_it_hears_at_165_s",
    "9, once per session": "test_each_session_is_renewed_in_its_last_minute",
    "9, data begins anew": "test_a_stream_to_a_dead_peer_goes_on_trying",
    "9, staged instead": (
        "test_section_9_a_keepalive_is_not_sent_where_a_packet_waits_and_will_do"
    ),
    "9, handshakes count": "test_section_9_messages_of_handshakes_are_heard_and_sent_too",
    "9, cookies do not": "test_section_9_a_cookie_reply_is_neither_heard_nor_an_answer",
    "10, allowed IPs": "test_allowed_ips_agree_with_a_plain_search",
    "10, ourselves": "test_a_peer_with_our_own_key_is_no_peer",
    "11, endpoints": "test_the_endpoint_follows_the_newest_authenticated_packet",
    "11, mapped addresses": "test_an_ipv4_address_in_the_clothes_of_ipv6_is_the_same_place",
    "12, ECN": "test_trap_43_marks_on_the_way_out",
    "12, class of handshakes": "test_messages_of_handshakes_have_the_class_of_the_modules",
    "13, UAPI": "test_what_wg_set_sends_is_done_and_shown_by_get",
    "13, wg": "test_wg_showconf_syncconf_addconf_and_setconf",
    "13, bytes counted": "test_bytes_are_counted_as_the_kernel_counts_them",
    "14, staged packets": "test_at_most_128_packets_wait_and_the_oldest_go_first",
    "15, trains": (
        "test_a_train_arrives_as_the_datagrams_that_it_was_made_of_over_both_families"
    ),
    "16, interop": "test_we_begin_a_session_with_a_preshared_key_and_are_answered",
    "16.3, boringtun": "test_data_that_is_not_padded_is_taken_whole",
    "16.4, tshark": "test_a_capture_opens_decrypted_if_it_holds_the_secrets",
}
NO_RULES = {"17"}  # how others differ: a table of switches that we do not have


@cache
def named():
    """Return the names of all tests."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
    return found


@pytest.mark.parametrize(
    "table", [TRAPS, ROWS, BAD_INPUT, RULES], ids=["traps", "rows", "bad", "rules"]
)
def test_every_test_of_a_table_is_there(table):
    assert {key: test for key, test in table.items() if test not in named()} == {}


def read(*path):
    file = SHARED.joinpath(*path)
    if not file.exists():
        pytest.skip(f"{file.name} is not beside the checkout")
    return file.read_text()


def test_every_trap_is_in_the_table():
    numbers = {
        int(n)
        for n in re.findall(r"^(\d+)\. ", read("specs", "overlay-traps.md"), re.MULTILINE)
    }
    assert len(numbers) > 70
    assert numbers == TRAPS.keys() | NOT_OURS.keys()
    assert not TRAPS.keys() & NOT_OURS.keys()


def test_every_row_of_the_field_reports_is_in_the_table():
    section = read("cases", "field-reports.md").partition("\n## 6.")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| (W\d\d) \|", section, re.MULTILINE)) == ROWS.keys()


def test_every_section_of_the_protocol_is_in_the_table():
    sections = set(re.findall(r"^## (\d+)\.", read("specs", "wireguard.md"), re.MULTILINE))
    assert sections == {re.match(r"\d+", rule)[0] for rule in RULES} | NO_RULES


def test_every_file_of_vectors_is_read_by_a_test():
    folder = SHARED / "vectors" / "wireguard"
    if not folder.exists():
        pytest.skip("the vectors are not beside the checkout")
    texts = "".join(path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__))
    assert [file.name for file in folder.glob("*.json") if file.name not in texts] == []
