"""The checker must find each kind of mistake: python3 -m unittest deploy/test_check_names.py"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import check_names as check

RENDERED = """
kind: Service
metadata: {name: okapi-auth-sidecar}
spec: {ports: [{port: 8071}, {port: 8072}]}
---
kind: ConfigMap
metadata: {name: okapi-auth-sidecar-patch}
data:
  patch.yaml: |
    spec: {template: {spec: {containers: [{name: okapi-auth-sidecar, image: i, ports: [{containerPort: 8071}, {containerPort: 8072}]}]}}}
---
kind: Job
metadata: {name: okapi-auth-sidecar-register}
spec: {template: {spec: {containers: [{name: register, image: i}]}}}
"""
EXPOSITION = """
auth_sidecar_requests_total{outcome="hit",reason="none"} 0
auth_sidecar_evictions_total{cause="capacity"} 0
auth_sidecar_answer_seconds_bucket{outcome="hit",le="+Inf"} 0
auth_sidecar_answer_seconds_sum{outcome="hit"} 0
auth_sidecar_answer_seconds_count{outcome="hit"} 0
process_open_fds 0
"""
TABLE = """
| metric (`auth_sidecar_…`) | meaning |
|---|---|
| `requests_total{outcome,reason}`, `evictions_total{cause}` | x |
| `answer_seconds{outcome}` | y |

"""
UNITS = {"okapi-auth-sidecar": "EnvironmentFile=/etc/okapi-auth-sidecar/okapi-auth-sidecar.env\n"}


def said(checker, text, known):
    return list(checker([check.Text("here", text)], known))


class Kubernetes(unittest.TestCase):
    RENDERED = check.Rendered([RENDERED])

    def test_sound_commands_pass(self):
        text = """
            C=okapi-auth-sidecar
            kubectl -n "$NS" exec "$POD" -c "$C" -- /okapi-auth-sidecar purge
            kubectl exec POD -c okapi-auth-sidecar -- /okapi-auth-sidecar purge | grep -c 'x'
            kubectl rollout status deployment/okapi && kubectl get service okapi-auth-sidecar
            curl -c cookies http://okapi-auth-sidecar:8071/ http://127.0.0.1:8072/metrics http://okapi:9130
            kubectl port-forward "pod/$POD" 19130:9130
        """.replace("            ", "")
        for checker in (check.check_containers, check.check_objects, check.check_addresses):
            self.assertEqual(said(checker, text, self.RENDERED), [])

    def test_a_container_that_is_not_rendered_is_found(self):
        expected = ["here:1: no container is called auth-sidecar"]
        for text in ("C=auth-sidecar  # the container", "kubectl exec POD -c auth-sidecar -- x", 'kubectl logs --container="auth-sidecar"'):
            self.assertEqual(said(check.check_containers, text, self.RENDERED), expected)
        self.assertEqual(said(check.check_containers, "kubectl logs -c register", self.RENDERED), ["here:1: no container is called register"])

    def test_an_object_that_is_not_rendered_is_found(self):
        self.assertEqual(said(check.check_objects, "x\nkubectl get service auth-sidecar", self.RENDERED), ["here:2: the chart makes no service auth-sidecar"])

    def test_a_service_and_ports_that_are_not_there_are_found(self):
        for text, expected in [
            ("`--url http://auth-sidecar:8071`", "here:1: no Service is called auth-sidecar"),
            ("http://okapi-auth-sidecar:8081", "here:1: the Service okapi-auth-sidecar has no port 8081"),
            ("pods/$POD:8073/proxy", "here:1: nobody listens on 8073"),
            ("admin port 8070", "here:1: nobody listens on 8070"),
        ]:
            self.assertEqual(said(check.check_addresses, text, self.RENDERED), [expected])

    def test_a_value_that_the_chart_does_not_have_is_found(self):
        values = {"registration": {"enabled": False, "nodeSelector": {}}}

        self.assertEqual(said(check.check_values, "`registration.enabled=true` `registration.nodeSelector.any` `config.rs` `registration.yaml`", values), [])
        for text in ("`registration.moduleId`", "--set registration.moduleId=auto"):
            self.assertEqual(said(check.check_values, text, values), ["here:1: the chart has no value registration.moduleId"])


class Program(unittest.TestCase):
    def test_a_setting_that_the_program_does_not_have_is_found(self):
        known = {"AUTH_SIDECAR_CACHE_TTL"}

        self.assertEqual(said(check.check_settings, "the prefix `AUTH_SIDECAR_`, AUTH_SIDECAR_CACHE_TTL=0s", known), [])
        self.assertEqual(said(check.check_settings, "`AUTH_SIDECAR_TTL`", known), ["here:1: the program has no setting AUTH_SIDECAR_TTL"])

    def test_settings_that_cannot_be_read_are_no_settings(self):
        with self.assertRaises(ValueError):
            check.settings("pub const SETTINGS: [] = [];\n", "")

    def test_a_unit_or_file_that_is_not_there_is_found(self):
        self.assertEqual(said(check.check_units, "systemctl restart okapi-auth-sidecar; cat /etc/okapi-auth-sidecar/okapi-auth-sidecar.env", UNITS), [])
        self.assertEqual(said(check.check_units, "journalctl -u auth-sidecar --since", UNITS), ["here:1: no unit is called auth-sidecar"])
        self.assertEqual(said(check.check_units, "/etc/okapi-auth-sidecar/env", UNITS), ["here:1: no unit knows /etc/okapi-auth-sidecar/env"])


class Metrics(unittest.TestCase):
    def test_sound_mentions_pass(self):
        text = """metrics | grep -E '^(process_(open|max)_fds|auth_sidecar_(requests|evictions)_total)' | grep -v ' 0$'
            auth_sidecar_answer_seconds, `requests_total{outcome="hit"}`, `auth_sidecar_evictions_total{cause="capacity"}`"""

        self.assertEqual(said(check.check_metrics, text, EXPOSITION + "process_max_fds 0\n"), [])

    def test_what_is_not_exposed_is_found(self):
        for text, expected in [
            ("auth_sidecar_request_total", "here:1: auth_sidecar_request_total is not exposed"),
            ('`evictions_total{cause="room"}`', "here:1: there is no evictions_total with cause='room'"),
            ('`eviction_total{cause="capacity"}`', "here:1: there is no eviction_total with cause='capacity'"),
            ('`evictions_total{reason="capacity"}`', "here:1: there is no evictions_total with reason='capacity'"),
            ("grep -E '^auth_sidecar_(requests|eviction)_total'", "here:1: grep finds nothing for ^auth_sidecar_eviction_total"),
            ("grep '^auth_sidecar_cache_'", "here:1: grep finds nothing for ^auth_sidecar_cache_"),
        ]:
            self.assertEqual(said(check.check_metrics, text, EXPOSITION), [expected])

    def test_the_table_has_every_metric_with_its_labels_and_no_other(self):
        self.assertEqual(check.check_table(TABLE, EXPOSITION), [])
        for change, expected in [
            ((", `evictions_total{cause}`", ""), "README.md: the table of metrics lacks evictions_total"),
            (("{outcome,reason}", "{outcome}"), "README.md: the labels of requests_total are ['outcome', 'reason']"),
            (("answer_seconds", "answer_time"), "README.md: answer_time is not exposed"),
        ]:
            self.assertIn(expected, check.check_table(TABLE.replace(*change), EXPOSITION))

    def test_an_alert_that_is_not_there_is_found(self):
        rules = {"groups": [{"rules": [{"alert": "AuthSidecarDown"}]}]}

        self.assertEqual(said(check.check_alerts, "[AuthSidecarDown](#authsidecardown) AuthSidecarUp", rules), ["here:1: no alert is called AuthSidecarUp"])


if __name__ == "__main__":
    unittest.main()
