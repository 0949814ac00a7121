"""The checker must find each kind of mistake: python3 -m unittest deploy/test_check_expressions.py"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_expressions as check

EXPOSITION = """
# TYPE auth_sidecar_requests_total counter
auth_sidecar_requests_total{outcome="hit",reason="none"} 1
auth_sidecar_requests_total{outcome="bypass",reason="no_token"} 1
# TYPE auth_sidecar_answer_seconds histogram
auth_sidecar_answer_seconds_bucket{outcome="hit",le="0.1"} 1
auth_sidecar_answer_seconds_bucket{outcome="hit",le="+Inf"} 1
auth_sidecar_answer_seconds_sum{outcome="hit"} 0.05
auth_sidecar_answer_seconds_count{outcome="hit"} 1
process_open_fds 12
"""


def names(expression):
    return check.check_names([("here", expression)], check.read_exposition([EXPOSITION]))


class Names(unittest.TestCase):
    def test_a_sound_expression_passes(self):
        self.assertEqual(names('sum by (outcome, pod) (rate(auth_sidecar_requests_total{outcome=~"hit|bypass", namespace="x"}[5m])) > 0'), [])
        self.assertEqual(names("process_open_fds and on (job, instance) auth_sidecar_requests_total"), [])
        self.assertEqual(names("histogram_quantile(0.9, sum by (le) (rate(auth_sidecar_answer_seconds_bucket[5m])))"), [])

    def test_a_metric_that_is_not_exposed_is_found_at_any_depth(self):
        self.assertEqual(names("1 - sum(rate(auth_sidecar_request_total[5m])) / 2"), ["here: auth_sidecar_request_total is not exposed"])
        self.assertEqual(names("up unless (max_over_time(sum(nothing)[1h:5m]) > 1)"), ["here: nothing is not exposed"])

    def test_a_label_that_the_metric_does_not_have_is_found(self):
        self.assertEqual(names('auth_sidecar_requests_total{cause="x"}'), ["here: auth_sidecar_requests_total has no label cause"])

    def test_a_value_that_the_label_never_has_is_found_among_alternatives_and_when_negated(self):
        self.assertEqual(names('auth_sidecar_requests_total{outcome=~"hit|mis"}'), ["here: auth_sidecar_requests_total: outcome is never 'mis'"])
        self.assertEqual(names('auth_sidecar_requests_total{reason!="notoken"}'), ["here: auth_sidecar_requests_total: reason is never 'notoken'"])

    def test_grouping_by_a_label_that_nothing_has_is_found(self):
        self.assertEqual(names("sum by (cause) (auth_sidecar_requests_total)"), ["here: nothing below has the label cause to group by"])
        self.assertEqual(names("process_open_fds and on (outcome) auth_sidecar_requests_total"), ["here: nothing below has the label outcome to group by"])

    def test_what_does_not_parse_is_found(self):
        self.assertEqual(len(names("sum(rate(auth_sidecar_requests_total[5m])")), 1)


class Syntax(unittest.TestCase):
    def test_promtool_refuses_what_is_no_promql_and_says_where(self):
        found = check.check_syntax([("panel 'a'", "up"), ("panel 'b'", "rate(up)")])

        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("panel 'b': "), found)

    def test_promtool_accepts_promql(self):
        self.assertEqual(check.check_syntax([("panel 'a'", "rate(up[5m])")]), [])

    def test_promtool_refuses_a_counter_without_help_and_suffix(self):
        self.assertNotEqual(check.check_metrics("# TYPE requests counter\nrequests 1\n"), [])
        self.assertEqual(check.check_metrics("# HELP requests_total All.\n# TYPE requests_total counter\nrequests_total 1\n"), [])


class Board(unittest.TestCase):
    def test_variables_are_filled_in_and_an_unknown_one_stays(self):
        filled = check.fill_in('rate(a{pod=~"$pod", b=~"$pods"}[$__rate_interval])', ["pod"])

        self.assertEqual(filled, 'rate(a{pod=~".*", b=~".*s"}[5m])')
        self.assertIn("$", check.fill_in('a{b="$nobody"}', ["pod"]))

    def test_a_metric_on_no_panel_is_found_and_a_histogram_is_shown_by_any_of_its_parts(self):
        exposed = check.read_exposition([EXPOSITION])

        self.assertEqual(check.check_all_shown([("p", "auth_sidecar_answer_seconds_sum")], exposed), ["auth_sidecar_requests_total is on no panel"])

    def test_a_key_that_grafana_does_not_know_is_found(self):
        board = {"title": "x", "panels": [{"id": 1, "type": "stat", "titel": "x"}]}
        found = check.check_board_types(board)

        if found is None:
            self.skipTest("grafana-foundation-sdk is not installed")
        self.assertIn("/panels/0/titel is unknown to Grafana", found)


class Alerts(unittest.TestCase):
    RULE = {"alert": "Down", "expr": "up == 0", "labels": {"severity": "critical"}, "annotations": {"summary": "s", "description": "d", "runbook_url": "deploy/runbooks/alerts.md#down"}}
    TESTS = {"tests": [{"alert_rule_test": [{"alertname": "Down", "exp_alerts": [{}]}]}]}

    def check(self, rule, tests=None, runbook="## Down\n"):
        return check.check_alerts({"groups": [{"rules": [rule]}]}, tests or self.TESTS, runbook)

    def test_a_complete_alert_passes(self):
        self.assertEqual(self.check(self.RULE), [])

    def test_each_missing_part_is_found(self):
        self.assertEqual(self.check({**self.RULE, "labels": {}}), ["Down: severity must be critical, warning or info"])
        self.assertEqual(self.check({**self.RULE, "annotations": {**self.RULE["annotations"], "summary": ""}}), ["Down: no summary"])
        self.assertEqual(len(self.check(self.RULE, runbook="## Up\n")), 1)
        self.assertEqual(self.check(self.RULE, tests={"tests": [{"alert_rule_test": [{"alertname": "Down"}]}]}), ["Down: no test in which it fires"])


class Tidy(unittest.TestCase):
    def test_order_and_figures_of_an_exposition_do_not_matter(self):
        text = "# HELP b B.\n# TYPE b counter\nb{x=\"2\"} 7\nb{x=\"1\"} 8\n\n# HELP a A.\n# TYPE a gauge\na 3\n"

        self.assertEqual(check.tidy(text), '# HELP a A.\n# TYPE a gauge\na 0\n\n# HELP b B.\n# TYPE b counter\nb{x="1"} 0\nb{x="2"} 0\n')

    def test_buckets_are_in_the_order_of_their_bounds(self):
        text = "# HELP h H.\n# TYPE h histogram\n" + "".join(f'h_bucket{{le="{bound}"}} 1\n' for bound in ("10", "+Inf", "0.5", "2"))

        self.assertEqual([line for line in check.tidy(text).splitlines() if "le=" in line], [f'h_bucket{{le="{bound}"}} 0' for bound in ("0.5", "2", "10", "+Inf")])


class Same(unittest.TestCase):
    def test_the_running_sidecar_and_the_committed_exposition_differ_in_no_way_unseen(self):
        committed = check.read_exposition([EXPOSITION])

        self.assertEqual(check.check_same(committed, check.read_exposition([EXPOSITION])), [])
        for change, expected in [
            (("process_open_fds 12\n", ""), "process_open_fds is in exposition.txt, and the sidecar does not expose it"),
            (("process_open_fds", "process_threads"), "process_threads is exposed, and exposition.txt does not have it"),
            (('reason="no_token"', 'reason="path"'), "auth_sidecar_requests_total: reason='path' is only exposed"),
            (('outcome="bypass",reason', 'result="bypass",reason'), "auth_sidecar_requests_total: label result is only exposed"),
        ]:
            live = check.read_exposition([EXPOSITION.replace(*change)])
            self.assertIn(expected, check.check_same(committed, live))

    def test_a_line_that_is_no_sample_is_refused(self):
        with self.assertRaises(ValueError):
            check.read_exposition(["<html>"])


if __name__ == "__main__":
    unittest.main()
