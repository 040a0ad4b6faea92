package pubsubfake

import (
	"iter"
	"slices"
	"strings"
)

// methods are those of the API that a fault can name.
var methods = map[string]bool{
	"CreateTopic": true, "UpdateTopic": true, "Publish": true, "GetTopic": true, "ListTopics": true,
	"ListTopicSubscriptions": true, "ListTopicSnapshots": true, "DeleteTopic": true, "DetachSubscription": true,
	"CreateSubscription": true, "GetSubscription": true, "UpdateSubscription": true, "ListSubscriptions": true,
	"DeleteSubscription": true, "ModifyAckDeadline": true, "Acknowledge": true, "Pull": true, "StreamingPull": true,
	"ModifyPushConfig": true, "GetSnapshot": true, "ListSnapshots": true, "CreateSnapshot": true, "UpdateSnapshot": true,
	"DeleteSnapshot": true, "Seek": true, "SetIamPolicy": true, "GetIamPolicy": true, "TestIamPermissions": true,
}

// checkName refuses what cannot be the name of a resource: projects/PROJECT/KIND/ID.
func checkName(field, name, kind string) error {
	parts := strings.Split(name, "/")
	if len(parts) != 4 || parts[0] != "projects" || parts[1] == "" || parts[2] != kind || parts[3] == "" {
		return invalid("Invalid resource name given (%s=%s). It must be projects/PROJECT/%s/ID. "+
			"Refer to https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names for more information.", field, name, kind)
	}
	return nil
}

// checkNewName refuses what cannot be the name of a new resource: an id has 3 to 255 characters,
// begins with a letter, and not with goog.
func checkNewName(field, name, kind string) error {
	if err := checkName(field, name, kind); err != nil {
		return err
	}
	id := name[strings.LastIndexByte(name, '/')+1:]
	letter := func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
	good := len(id) >= 3 && len(id) <= 255 && letter(id[0]) && !strings.HasPrefix(id, "goog")
	for i := range len(id) {
		good = good && (letter(id[i]) || id[i] >= '0' && id[i] <= '9' || strings.IndexByte("-_.~+%", id[i]) >= 0)
	}
	if !good {
		return invalid("Invalid [%s] name: (name=%s). The id must have 3 to 255 letters, digits and -_.~+%%, begin with a letter, and not with goog.",
			kind, name)
	}
	return nil
}

// page is a part of the names of a project, sorted; project "" means all names.
func page(all iter.Seq[string], project string, size int32, token string) (names []string, next string, err error) {
	if size < 0 {
		return nil, "", outOfRange("page_size", size, "0 at least")
	}
	if size == 0 {
		size = 100
	}
	for _, name := range slices.Sorted(all) {
		switch {
		case project != "" && !strings.HasPrefix(name, project+"/") || name <= token && token != "":
		case len(names) == int(size):
			return names, names[len(names)-1], nil
		default:
			names = append(names, name)
		}
	}
	return names, "", nil
}
